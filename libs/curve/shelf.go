package curve

// MaxFamilies bounds the families of which something is remembered; the one added first goes.
const MaxFamilies = 1000

// Shelf holds values by the name of what they belong to. The zero value is ready for use.
type Shelf[T any] struct {
	byName map[string][]T
	order  []string
}

// Of returns the values of a name.
func (s *Shelf[T]) Of(name string) []T { return s.byName[name] }

// Put replaces the values of a name.
func (s *Shelf[T]) Put(name string, values []T) {
	if s.byName == nil {
		s.byName = map[string][]T{}
	}
	if _, known := s.byName[name]; !known {
		if s.order = append(s.order, name); len(s.order) > MaxFamilies {
			delete(s.byName, s.order[0])
			s.order = s.order[1:]
		}
	}
	s.byName[name] = values
}
