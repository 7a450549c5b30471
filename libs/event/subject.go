package event

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/switchyard-dl/switchyard/libs/train"
)

// Subject is the parsed form of `yard.<entity>.<id>.<fact>.v<N>`.
type Subject struct {
	Entity  string
	ID      string
	Fact    string
	Version int
}

// String returns the subject on the wire.
func (s Subject) String() string {
	return fmt.Sprintf("yard.%s.%s.%s.v%d", s.Entity, s.ID, s.Fact, s.Version)
}

// About returns the subjects of all facts about the same thing.
func (s Subject) About() string { return fmt.Sprintf("yard.%s.%s.>", s.Entity, s.ID) }

// PlanSubject is where the planner publishes its plans.
func PlanSubject() Subject { return Subject{Entity: "plan", ID: "main", Fact: FactDecided, Version: 1} }

// JobSubject returns the subject of a job's fact in its current version.
func JobSubject(id train.JobID, fact string) Subject {
	return Subject{Entity: "job", ID: string(id), Fact: fact, Version: 1}
}

// ParseSubject parses a subject from the wire. The error names the wrong part.
func ParseSubject(s string) (Subject, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 5 || parts[0] != "yard" {
		return Subject{}, fmt.Errorf("subject %.80q: want yard.<entity>.<id>.<fact>.v<N>, five parts (an id has no dots)", s)
	}
	if err := checkID(parts[1], parts[2]); err != nil {
		return Subject{}, fmt.Errorf("subject %.80q: %w", s, err)
	}
	version, ok := strings.CutPrefix(parts[4], "v")
	n, err := strconv.Atoi(version)
	if !ok || err != nil || n < 1 || strconv.Itoa(n) != version {
		return Subject{}, fmt.Errorf("subject %.80q: version %.20q: want v1 or higher", s, parts[4])
	}
	return Subject{Entity: parts[1], ID: parts[2], Fact: parts[3], Version: n}, nil
}

// checkID checks the id of an entity. The id of a link, user, tenant or refusal may be longer than others and contain
// '=', which joins two names of any kind, or the parts of one, into one token.
func checkID(entity, id string) error {
	if !slices.Contains([]string{"net", EntityUser, EntityTenant, EntityAccess}, entity) {
		_, err := train.ParseJobID(id)
		return err
	}
	const mostLink = 200
	odd := strings.ContainsFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_=", c))
	})
	if id == "" || len(id) > mostLink || odd {
		return fmt.Errorf("%s %.80q: want 1 to %d letters, digits, '-', '_' or '='", entity, id, mostLink)
	}
	return nil
}
