package oci

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// authorities are the certificates by which programs know the servers of webhooks, mail and databases.
func authorities() ([]byte, error) {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue // a file of certificates cannot say for what they hold
		}
		if err := pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, fmt.Errorf("write a certificate: %w", err)
		}
	}
	return out.Bytes(), nil
}

// nvmlNeeds are the libraries of NVIDIA's NVML, which the container runtime brings into the image of the node agent.
func nvmlNeeds() []string {
	return []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
}

// Libraries returns the loader and the C library that a dynamically linked program was built with, as its C compiler
// finds them; of a static one, nothing.
func Libraries(ctx context.Context, program string, compiler func() (string, error)) ([]File, error) {
	file, err := elf.Open(program)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	defer func() { _ = file.Close() }()
	section := file.Section(".interp")
	if section == nil {
		return nil, nil
	}
	text, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("read the loader's name in %s: %w", program, err)
	}
	loader := strings.TrimPrefix(strings.TrimRight(string(text), "\x00"), "/")
	folder := "lib/x86_64-linux-gnu"
	if file.Machine == elf.EM_AARCH64 {
		folder = "lib/aarch64-linux-gnu"
	}
	files := map[string]string{loader: path.Base(loader)}
	needed, err := file.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("read what %s needs: %w", program, err)
	}
	for _, name := range append(needed, nvmlNeeds()...) {
		if name != path.Base(loader) {
			files[path.Join(folder, name)] = name
		}
	}
	cc, err := compiler()
	if err != nil {
		return nil, err
	}
	var found []File
	for _, at := range sortedKeys(files) {
		data, err := libraryOf(ctx, cc, files[at])
		if err != nil {
			return nil, err
		}
		found = append(found, File{Path: at, Data: data, Mode: 0o755})
	}
	return found, nil
}

func libraryOf(ctx context.Context, compiler, name string) ([]byte, error) {
	said, err := exec.CommandContext(ctx, compiler, "-print-file-name="+name).Output()
	if err != nil {
		return nil, fmt.Errorf("ask %s for %s: %w", compiler, name, err)
	}
	// A compiler repeats the name of what it does not find.
	at := strings.TrimSpace(string(said))
	if !filepath.IsAbs(at) {
		return nil, fmt.Errorf("%s has no library %s", compiler, name)
	}
	data, err := os.ReadFile(at)
	if err != nil {
		return nil, fmt.Errorf("read a library: %w", err)
	}
	return data, nil
}
