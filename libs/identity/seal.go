package identity

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/libs/installation"
	"github.com/switchyard-dl/switchyard/libs/seal"
	"github.com/switchyard-dl/switchyard/libs/train"
)

// The files of the key by which admission signs the jobs that it admits. Executors need the public one.
const (
	sealName   = "admission.seal"
	publicName = "admission.pub"
)

// Errors of a seal.
var (
	// ErrUnsealed: the record of a job has no signature of admission's, or was changed since.
	ErrUnsealed = seal.ErrUnsealed
	// ErrNoSealKey: nobody can check signatures here.
	ErrNoSealKey = errors.New("no key of admission")
)

// Seal is admission's private key. A nil Seal signs nothing.
type Seal struct {
	pair nkeys.KeyPair
	// Since is the newest fact of JOBS when the key was made. What was admitted until then has no signature.
	Since uint64
}

// sealFile is the content of the file.
type sealFile struct {
	Seed  string `json:"seed"`
	Since uint64 `json:"since"`
}

// Seal reads the key; os.ErrNotExist if there is none yet.
func (k Keys) Seal() (*Seal, error) {
	path := filepath.Join(string(k), sealName)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the key of admission's signature: %w", err)
	}
	var f sealFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	pair, err := nkeys.FromSeed([]byte(f.Seed))
	if err != nil {
		return nil, fmt.Errorf("read %s: want a seed: %w", path, err)
	}
	return &Seal{pair, f.Since}, nil
}

// NewSeal makes a key. It counts from Keep on.
func NewSeal(since uint64) (*Seal, error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, fmt.Errorf("make the key of admission's signature: %w", err)
	}
	return &Seal{pair, since}, nil
}

// Keep stores the key in a folder, the private half first.
func (s *Seal) Keep(k Keys) error {
	if err := os.MkdirAll(string(k), 0o700); err != nil {
		return fmt.Errorf("make the folder of keys: %w", err)
	}
	seed, err := s.pair.Seed()
	if err != nil {
		return fmt.Errorf("keep the key of admission's signature: %w", err)
	}
	data, err := json.Marshal(sealFile{string(seed), s.Since})
	if err == nil {
		err = installation.WriteFile(filepath.Join(string(k), sealName), append(data, '\n')) // mode 0600
	}
	if err != nil {
		return fmt.Errorf("keep the key of admission's signature: %w", err)
	}
	return s.Publish(k)
}

// Publish writes the public half into the folder, unless it is there.
func (s *Seal) Publish(k Keys) error {
	public, err := s.pair.PublicKey()
	if err != nil {
		return fmt.Errorf("keep admission's public key: %w", err)
	}
	if known, err := k.readPublic(); err == nil && known == public {
		return nil
	}
	return installation.WriteFile(filepath.Join(string(k), publicName), []byte(public+"\n"))
}

// Sign returns the signature of a job: of its id, its life and its spec, which has its user and tenant.
func (s *Seal) Sign(job train.Job) ([]byte, error) {
	if s == nil {
		return nil, nil
	}
	text, err := seal.Text(job)
	if err != nil {
		return nil, err
	}
	return s.pair.Sign(text)
}

// Check returns ErrUnsealed unless a job bears the signature of this key.
func (s *Seal) Check(job train.Job) error {
	public, err := s.pair.PublicKey()
	if err != nil {
		return fmt.Errorf("check a signature: %w", err)
	}
	return seal.Check(public, job)
}

// Known reports whether the bus knows the executor by a key, or admission's signature can be checked. On a bus without
// accounts it does not, and nothing that came over it can be trusted, signed or not.
func (k Keys) Known() bool {
	_, err := k.readPublic()
	return err == nil || k.File("executor") != ""
}

// Check returns nil if admission has signed a job as it is, else ErrUnsealed, or ErrNoSealKey. If the bus does not know
// the executor (Known), it checks nothing.
func (k Keys) Check(job train.Job) error {
	if !k.Known() {
		return nil
	}
	public, err := k.readPublic()
	if err != nil {
		return err
	}
	return seal.Check(public, job)
}

func (k Keys) readPublic() (string, error) {
	data, err := os.ReadFile(filepath.Join(string(k), publicName))
	if err != nil {
		return "", fmt.Errorf("%w: admission makes it as it starts; copy %s from the folder of its keys: %w", ErrNoSealKey, publicName, err)
	}
	return strings.TrimSpace(string(data)), nil
}
