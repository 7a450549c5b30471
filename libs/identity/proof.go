package identity

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/libs/installation"
)

// ErrUnproven says that a message names who asks, and no role that may say so has signed that.
var ErrUnproven = errors.New("not proven")

// Request is what the proof of a request covers. The server does not keep the account from which a message came, so the
// message itself has to tell.
type Request struct {
	// Role publishes it. Person asks for it through Door, unless the role itself does.
	Role, Person, Door string
	Subject, Key       string
	Body               []byte
}

// The server keeps the keys of what it has stored for KeysKept, and stores no second message with the same. A proof
// counts for proofLife around its signature, so that nobody can publish a request of another a second time once its key
// is forgotten. In between is room for clocks that differ.
const (
	KeysKept  = 2 * time.Hour
	proofLife = KeysKept / 2
)

// naming are the roles that may say for whom they publish: web asks the kernel, admission passes on what it has
// checked, and the operator may do everything.
func naming() []string { return []string{"web", "admission", Operator} }

// text returns the bytes that are signed at a time.
func (r Request) text(at string) ([]byte, error) {
	sum := sha256.Sum256(r.Body)
	parts := []string{r.Role, at, r.Person, r.Door, r.Subject, r.Key, base64.StdEncoding.EncodeToString(sum[:])}
	list, err := json.Marshal(parts) // a list has one reading, whatever the parts contain
	if err != nil {
		return nil, fmt.Errorf("encode what is signed of %s: %w", r.Subject, err)
	}
	return append([]byte("switchyard request 2\n"), list...), nil
}

// Voucher signs the requests that a role publishes. A nil Voucher signs nothing.
type Voucher struct {
	role string
	pair nkeys.KeyPair
}

// Voucher reads the key of a role; nil if the folder has none.
func (k Keys) Voucher(role string) (*Voucher, error) {
	if k.File(role) == "" {
		return nil, nil //nolint:nilnil // a bus without accounts has no keys
	}
	data, err := os.ReadFile(k.path(role))
	if err != nil {
		return nil, fmt.Errorf("read the key of %s: %w", role, err)
	}
	pair, err := nkeys.ParseDecoratedNKey(data)
	if err != nil {
		return nil, fmt.Errorf("read the key of %s in %s: want a seed of a user, SU..: %w", role, k.path(role), err)
	}
	return &Voucher{role, pair}, nil
}

// Sign returns the proof of a request: the role, the time and the role's signature.
func (v *Voucher) Sign(r Request, now time.Time) (string, error) {
	if v == nil {
		return "", nil
	}
	r.Role = v.role
	at := strconv.FormatInt(now.Unix(), 10)
	text, err := r.text(at)
	if err != nil {
		return "", err
	}
	signature, err := v.pair.Sign(text)
	if err != nil {
		return "", fmt.Errorf("sign %s: %w", r.Subject, err)
	}
	return v.role + " " + at + " " + base64.StdEncoding.EncodeToString(signature), nil
}

// rosterName is the file with the public keys of all roles.
const rosterName = "roster.json"

// Roster are the public keys of the roles.
type Roster struct {
	// Since is when the file was made: what was stored before has no proof, and is believed.
	Since time.Time   `json:"since"`
	Keys  []PublicKey `json:"keys"`
}

// PublicKey is one key of a role. What it has signed counts if it was stored before Until, when another took its place.
type PublicKey struct {
	Role   string    `json:"role"`
	Public string    `json:"public"`
	Until  time.Time `json:"until,omitzero"`
}

// of returns the key that a role had at a time.
func (r *Roster) of(role string, at time.Time) (public string, known bool) {
	i := slices.IndexFunc(r.Keys, func(k PublicKey) bool { return k.Role == role && (k.Until.IsZero() || at.Before(k.Until)) })
	if i < 0 {
		return "", false
	}
	return r.Keys[i].Public, true
}

// enter makes a key the one of a role from a time on. It reports whether it was another before.
func (r *Roster) enter(role, public string, now time.Time) bool {
	known, is := r.of(role, now)
	if is && known == public {
		return false
	}
	for i, k := range r.Keys {
		if k.Role == role && k.Until.IsZero() {
			r.Keys[i].Until = now
		}
	}
	r.Keys = append(r.Keys, PublicKey{Role: role, Public: public})
	return true
}

// Roster reads the public keys. A folder without the file, on a bus with accounts, gives one that proves nothing.
func (k Keys) Roster() (*Roster, error) {
	path := filepath.Join(string(k), rosterName)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &Roster{}, nil
	}
	var r Roster
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return nil, fmt.Errorf("read the public keys in %s: %w", path, err)
	}
	return &r, nil
}

// keepRoster writes the public keys if they are new or have changed.
func (k Keys) keepRoster(now time.Time) error {
	r, err := k.Roster()
	if err != nil {
		return err
	}
	if r.Since.IsZero() {
		r.Since = now
	}
	changed := false
	for _, role := range Roles() {
		public, err := k.public(role)
		if err != nil {
			return err
		}
		changed = r.enter(role, public, now) || changed
	}
	if !changed {
		return nil
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = installation.WriteFile(filepath.Join(string(k), rosterName), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the public keys: %w", err)
	}
	return nil
}

// Check returns the role that has signed a request which was stored at a time, or ErrUnproven.
func (r *Roster) Check(asked Request, proof string, at time.Time) (role string, err error) {
	role, rest, _ := strings.Cut(proof, " ")
	signed, code, _ := strings.Cut(rest, " ")
	public, known := r.of(role, at)
	if !known {
		return "", fmt.Errorf("%w: %s has the proof of %.40q, whose public key %s in the folder of keys does not have", ErrUnproven, asked.Subject, role, rosterName)
	}
	if asked.Person != "" && !slices.Contains(naming(), role) {
		return "", fmt.Errorf("%w: %s says that %.80q asks for %s, and only %s may say such a thing", ErrUnproven, role, asked.Person, asked.Subject, strings.Join(naming(), ", "))
	}
	signature, err := base64.StdEncoding.DecodeString(code)
	if err != nil {
		return "", fmt.Errorf("%w: the proof of %s is no base64", ErrUnproven, asked.Subject)
	}
	if seconds, err := strconv.ParseInt(signed, 10, 64); err != nil || at.Sub(time.Unix(seconds, 0)).Abs() > proofLife {
		return "", fmt.Errorf("%w: %s was stored at %s, and %s has signed it at %.40q, in seconds of Unix: a proof counts for %s (or the clocks of two machines differ)",
			ErrUnproven, asked.Subject, at.UTC().Format(time.RFC3339), role, signed, proofLife)
	}
	pair, err := nkeys.FromPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("read the public key of %s: %w", role, err)
	}
	asked.Role = role
	text, err := asked.text(signed)
	if err != nil {
		return "", err
	}
	if pair.Verify(text, signature) != nil {
		return "", fmt.Errorf("%w: %s has not signed %s as it is, with %.80q as who asks", ErrUnproven, role, asked.Subject, asked.Person)
	}
	return role, nil
}
