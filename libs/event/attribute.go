package event

// Attribute writes into the body of a request who asks for it. A submission names a user, which is another question.
func Attribute(body any, by string) {
	if by == "" {
		return
	}
	switch b := body.(type) {
	case *CancelRequested:
		b.By = by
	case *EditRequested:
		b.By = by
	case *Wanted:
		b.By = by
	case *CordonRequested:
		b.By = by
	case *DrainRequested:
		b.By = by
	case *ResumeRequested:
		b.By = by
	case *RemoveRequested:
		b.By = by
	case *UserSet:
		b.By = by
	case *TenantSet:
		b.By = by
	case *ExperimentStopRequested:
		b.By = by
	}
}
