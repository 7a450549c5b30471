package install

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/switchyard-dl/switchyard/cmd/switchyard/cli/install/units"
	"github.com/switchyard-dl/switchyard/libs/identity"
	"github.com/switchyard-dl/switchyard/libs/installation"
	library "github.com/switchyard-dl/switchyard/libs/python"
)

// libraryDir has the Python packages of an installation by hand.
const libraryDir = "/usr/local/lib/switchyard/python"

// place is where the files are.
func (o *options) place() units.Place {
	return units.Place{Programs: o.programs, Library: libraryDir, Units: units.LocalUnits, User: o.user, Group: o.group, Data: o.dataDir, JobDisk: o.jobDisk}
}

// library unpacks the Python packages where root alone can change them: they run as every user.
func (o *options) library() step {
	return step{says: "unpack the Python packages into " + o.at(libraryDir), do: func(context.Context) error { return installation.Unpack(o.at(libraryDir), library.Files) }}
}

var errKeyLater = errors.New("the folder is there, and has no key of admission's yet: start switchyard.service once, and run this again")

// keys makes admission's key in the folder of the service, and gives the launcher the public half in a file of root.
func (o *options) keys() step {
	return step{says: fmt.Sprintf("make %s of %s, with admission's key, and write its public half to %s", o.at(o.dataDir), o.user, o.at(units.KeyPath)), do: func(ctx context.Context) error {
		dir := o.at(o.dataDir)
		err := os.MkdirAll(filepath.Dir(dir), 0o755)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if err == nil { // until it is given away, nobody else can put anything into it
			err = o.makeKeys(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		public, err := readPublic(filepath.Join(string(identity.KeysOf(dir)), filepath.Base(units.KeyPath)))
		if err != nil {
			return err
		}
		return o.file(units.File{Path: units.KeyPath, Text: public + "\n"}).do(ctx)
	}}
}

// makeKeys makes the key in a fresh folder, and gives the folder to the service.
func (o *options) makeKeys(dir string) error {
	seal, err := identity.NewSeal(0)
	if err == nil {
		err = seal.Keep(identity.KeysOf(dir))
	}
	if err != nil || o.root != "" {
		return err
	}
	u, err := user.Lookup(o.user)
	if err != nil {
		return err
	}
	uid, failed := strconv.Atoi(u.Uid)
	gid, err := strconv.Atoi(u.Gid)
	if err = errors.Join(failed, err); err != nil {
		return err
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error { return errors.Join(err, os.Lchown(path, uid, gid)) })
}

// readPublic reads a public key from a folder that belongs to another user: what it copies can be nothing else.
func readPublic(path string) (string, error) {
	f, err := installation.OpenRegular(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errKeyLater
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data := make([]byte, 128)
	n, err := f.Read(data)
	text := strings.TrimSpace(string(data[:n]))
	if err != nil || !nkeys.IsValidPublicUserKey(text) {
		return "", errKeyLater
	}
	return text, nil
}

// configuration writes the configuration, unless there is one.
func (o *options) configuration() step {
	s := o.file(o.place().Config())
	write := s.do
	s.says += ", unless it is there"
	s.do = func(ctx context.Context) error {
		if _, err := os.Lstat(o.at(units.ConfigPath)); err == nil {
			return nil
		}
		return write(ctx)
	}
	return s
}
