package train_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/switchyard-dl/switchyard/libs/train"
)

func TestSourcesOfSecrets(t *testing.T) {
	for text, want := range map[string]train.SecretSource{
		"file:/home/ann/token":  {Kind: train.SecretFile, Name: "/home/ann/token"},
		"credential:wandb":      {Kind: train.SecretCredential, Name: "wandb"},
		"secret:wandb/api-key":  {Kind: train.SecretObject, Name: "wandb", Key: "api-key"},
		"secret:a.b/tls.key":    {Kind: train.SecretObject, Name: "a.b", Key: "tls.key"},
		"file:/home/a:b/token ": {Kind: train.SecretFile, Name: "/home/a:b/token "},
	} {
		if got, err := train.ParseSecret(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "token", "file:", "file:token", "file:/", "file:/a/../b", "file:/a/", "file:/a\nb", "credential:", "credential:bob.wandb", "credential:../x", "credential:a/b",
		"secret:wandb", "secret:/key", "secret:a/", "secret:a/b/c", "secret:a/..", "secret:../b", "value:x", "env:HOME", "file:/" + strings.Repeat("x", 2000),
	} {
		if got, err := train.ParseSecret(text); err == nil {
			t.Errorf("%.40s: taken as %+v", text, got)
		}
	}
}

func FuzzParseSecret(f *testing.F) {
	for _, seed := range []string{"file:/home/ann/token", "credential:wandb", "secret:a/b", "secret:../..", "file:/../etc"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := train.ParseSecret(text)
		if err != nil {
			return
		}
		back := string(s.Kind) + ":" + s.Name
		if s.Kind == train.SecretObject {
			back += "/" + s.Key
		}
		if back != text {
			t.Errorf("%q is read as %q", text, back)
		}
		if s.Kind == train.SecretFile && (!filepath.IsAbs(s.Name) || strings.Contains(s.Name+"/", "/../")) || s.Kind != train.SecretFile && strings.ContainsAny(s.Name+s.Key, "/\x00") {
			t.Errorf("%q names another folder", text)
		}
	})
}
