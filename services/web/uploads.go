package web

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/switchyard-dl/switchyard/libs/access"
	"github.com/switchyard-dl/switchyard/libs/bus"
	"github.com/switchyard-dl/switchyard/libs/contract"
	"github.com/switchyard-dl/switchyard/libs/run"
	"github.com/switchyard-dl/switchyard/libs/train"
	"github.com/switchyard-dl/switchyard/libs/unit"
	"github.com/switchyard-dl/switchyard/libs/upload"
	"github.com/switchyard-dl/switchyard/services/web/api"
)

// receive answers a route whose body takes a while.
func (s server) receive(route api.Route) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answering(route, func(_ api.Route, r *http.Request) (answer, error) {
			run.TransferWithin(w, bus.TransferTime)
			return s.upload(r)
		})(w, r)
	}
}

// upload stores the archive of a folder, which belongs to who sends it.
func (s server) upload(r *http.Request) (answer, error) {
	person, err := s.caller(r)
	if err == nil {
		err = s.may(r, access.Submit, access.Owner{})
	}
	if err == nil {
		err = s.inTime(person)
	}
	if err != nil {
		return answer{}, err
	}
	hash := r.PathValue("id")
	if !train.IsUpload(hash) {
		return answer{}, problemError{problem(http.StatusBadRequest, fmt.Sprintf("want the SHA-256 of the archive as 64 hexadecimal digits, found %.80q", hash), "")}
	}
	if person.Name != "" { // one at a time: what he has is counted before
		end, begun := s.uploading.begin(person.Name, 1)
		if !begun {
			p := problem(http.StatusTooManyRequests, person.Name+" uploads another folder at the moment", "try again")
			p.RetrySeconds = 1
			return answer{}, problemError{p}
		}
		defer end()
	}
	room, err := s.room(r, person.Name)
	if err != nil {
		return answer{}, err
	}
	stored, err := s.bus.PutUpload(r.Context(), person.Name, hash, upload.Checked(http.MaxBytesReader(nil, r.Body, room), hash))
	_, large := errors.AsType[*http.MaxBytesError](err)
	switch {
	case large:
		err = problemError{problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the archive has more than %s: a folder has at most %s, and the folders of a person %s", unit.Bytes(room), unit.Bytes(upload.Standard().Bytes), unit.Bytes(contract.MaxUploadsOfPerson)),
			fmt.Sprintf("name in %s what the job does not need; what no job needs goes after %.0f hours", upload.IgnoreFile, bus.UploadKept.Hours()))}
	case errors.Is(err, upload.ErrRefused):
		err = problemError{problem(http.StatusUnprocessableEntity, err.Error(), "")}
	case err != nil:
		err = problemError{problem(http.StatusServiceUnavailable, err.Error(), "send it again")}
	}
	return answer{body: api.Uploaded{Repeat: !stored}}, err
}

// room returns how large an archive may be. A person has a part of the store; the owner of the installation, who has no
// name, has all of it.
func (s server) room(r *http.Request, person string) (int64, error) {
	if person == "" {
		return upload.Standard().Archive(), nil
	}
	has, err := s.bus.UploadedBy(r.Context(), person)
	if err != nil {
		return 0, problemError{problem(http.StatusServiceUnavailable, err.Error(), "send it again")}
	}
	return roomBeside(has), nil
}

// roomBeside is how large an archive a person may upload beside what he has.
func roomBeside(has int64) int64 {
	return max(min(upload.Standard().Archive(), contract.MaxUploadsOfPerson-has), 0)
}
