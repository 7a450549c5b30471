// Package session decides who has logged in to the page: one-time links become sessions, and sessions end. It has no
// clock, draws no secrets and keeps no files; of secrets it holds hashes alone.
package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/switchyard-dl/switchyard/libs/train"
)

const (
	// LinkLife is the time within which a link can be used, Life that after which a session ends.
	LinkLife = 10 * time.Minute
	Life     = 7 * 24 * time.Hour
	// most is the largest number of links, and of sessions. The oldest ones make room.
	most = 1000
)

// Who is a person as the machine knows him: the owner of the installation, or one of its users by his name.
type Who struct {
	Owner bool   `json:"owner,omitempty"`
	Name  string `json:"name,omitempty"`
}

// Book holds the links and sessions in force, by the hashes of their secrets.
type Book struct {
	links, sessions map[string]entry
}

type entry struct {
	Who   Who       `json:"who"`
	Until time.Time `json:"until"`
}

// New makes an empty book.
func New() *Book { return &Book{links: map[string]entry{}, sessions: map[string]entry{}} }

// Link makes a link for a person, which token opens once.
func (b *Book) Link(token string, who Who, now time.Time) { put(b.links, token, who, now, LinkLife) }

// Redeem ends the link of a token and begins a session that cookie names. ok is false if there is no such link.
func (b *Book) Redeem(token, cookie string, now time.Time) (who Who, ok bool) {
	link, known := b.links[train.Hash(token)]
	delete(b.links, train.Hash(token))
	if !known || !now.Before(link.Until) {
		return Who{}, false
	}
	put(b.sessions, cookie, link.Who, now, Life)
	return link.Who, true
}

// Find returns whose session a cookie names.
func (b *Book) Find(cookie string, now time.Time) (who Who, ok bool) {
	s, known := b.sessions[train.Hash(cookie)]
	if !known || !now.Before(s.Until) {
		return Who{}, false
	}
	return s.Who, true
}

// End ends a session.
func (b *Book) End(cookie string) { delete(b.sessions, train.Hash(cookie)) }

// Encode writes the sessions, which a later process goes on with. Links end with the process.
func (b *Book) Encode() ([]byte, error) { return json.Marshal(b.sessions) }

// Decode reads the sessions that Encode wrote.
func Decode(data []byte) (*Book, error) {
	b := New()
	if err := json.Unmarshal(data, &b.sessions); err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	if b.sessions == nil {
		b.sessions = map[string]entry{}
	}
	return b, nil
}

// put adds an entry, and removes those that have ended and, if there are too many, the oldest.
func put(entries map[string]entry, secret string, who Who, now time.Time, life time.Duration) {
	maps.DeleteFunc(entries, func(_ string, e entry) bool { return !now.Before(e.Until) })
	if len(entries) >= most {
		delete(entries, slices.MinFunc(slices.Collect(maps.Keys(entries)), func(x, y string) int { return entries[x].Until.Compare(entries[y].Until) }))
	}
	entries[train.Hash(secret)] = entry{who, now.Add(life)}
}
