package train

import (
	"fmt"
	"path/filepath"
	"strings"
)

// SecretKind is where the value of a secret variable is kept.
type SecretKind string

// The kinds of sources.
const (
	// SecretFile is a file that belongs to the job's user, on the machine that runs the job.
	SecretFile SecretKind = "file"
	// SecretCredential is a credential that systemd has loaded for the executor, under USER.NAME.
	SecretCredential SecretKind = "credential"
	// SecretObject is a key of a Secret of Kubernetes.
	SecretObject SecretKind = "secret"
)

// SecretSource says where the value of a secret variable is. A spec has it as text: file:/home/ann/token,
// credential:NAME or secret:NAME/KEY.
type SecretSource struct {
	Kind SecretKind
	// Name is the path of a file, or the name of a credential or Secret.
	Name string
	// Key is that of a Secret.
	Key string
}

// maxSecretName bounds names and paths.
const maxSecretName = 1024

// ParseSecret reads the source of a secret variable.
func ParseSecret(text string) (SecretSource, error) {
	kind, name, _ := strings.Cut(text, ":")
	s := SecretSource{Kind: SecretKind(kind), Name: name}
	wrong := fmt.Errorf("want file:/PATH, credential:NAME or secret:NAME/KEY, found %.80q", text)
	if len(name) > maxSecretName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return s, wrong
	}
	switch s.Kind {
	case SecretFile:
		if !filepath.IsAbs(name) || filepath.Clean(name) != name || name == "/" {
			return s, fmt.Errorf("%w: the path must be absolute, without . or .. in it", wrong)
		}
		return s, nil
	case SecretCredential:
		// The user stands before the last dot of the credential's whole name, so this part has none.
		if name == "" || strings.ContainsAny(name, "./") {
			return s, fmt.Errorf("%w: the name of a credential has no dot and no slash", wrong)
		}
		return s, nil
	case SecretObject:
		var found bool
		if s.Name, s.Key, found = strings.Cut(name, "/"); found && plainName(s.Name) && plainName(s.Key) {
			return s, nil
		}
	}
	return s, wrong
}

// plainName reports whether a text may be the name of a Secret or of one of its keys.
func plainName(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 253 && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r == '-' || r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z')
	})
}
