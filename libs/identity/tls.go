package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// The files by which a process and a server of the bus know each other, as PEM. A folder without an authority's
// certificate stands for a bus without TLS.
const (
	authorityName   = "ca.crt"
	certificateName = "tls.crt"
	privateName     = "tls.key"
)

// How long certificates are valid. Each Deploy renews those of processes.
const (
	authorityLife   = 20 * 365 * 24 * time.Hour
	certificateLife = 3 * 365 * 24 * time.Hour
)

// TLS returns how to connect to a bus whose authority is in the folder; nil if there is none.
func (k Keys) TLS() (*tls.Config, error) {
	path := func(name string) string { return filepath.Join(string(k), name) }
	trusted, err := os.ReadFile(path(authorityName))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the bus's authority: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("read the bus's authority: %s has no certificate in PEM form", path(authorityName))
	}
	own, err := tls.LoadX509KeyPair(path(certificateName), path(privateName))
	if err != nil {
		return nil, fmt.Errorf("read the certificate for the bus: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: pool, Certificates: []tls.Certificate{own}}, nil
}

// authority signs the certificates of one installation.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	public      []byte // PEM
}

// authority returns the one of the folder, made at the first call.
func (k Keys) authority() (authority, error) {
	dir := filepath.Join(string(k), "authority")
	crt, key := filepath.Join(dir, authorityName), filepath.Join(dir, "ca.key")
	pair, err := tls.LoadX509KeyPair(crt, key)
	if errors.Is(err, os.ErrNotExist) {
		template := &x509.Certificate{
			Subject: pkix.Name{CommonName: "Switchyard's bus"}, NotAfter: time.Now().Add(authorityLife),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		}
		public, private, failed := issue(template, authority{})
		if err = failed; err == nil {
			err = errors.Join(write(crt, public, 0o644), write(key, private, 0o600))
		}
		if err == nil {
			pair, err = tls.X509KeyPair(public, private)
		}
	}
	if err != nil {
		return authority{}, fmt.Errorf("read or make the authority in %s: %w", dir, err)
	}
	signer, is := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !is {
		return authority{}, fmt.Errorf("read the authority in %s: want an ECDSA key", dir)
	}
	return authority{pair.Leaf, signer, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw})}, nil
}

// deploy writes a certificate of a name, its key and the authority's certificate into a folder. Servers are reached
// under hosts.
func (a authority) deploy(dir, name string, hosts []string) error {
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(certificateLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(hosts) > 0 { // a server, which is a client of the others
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	public, private, err := issue(template, a)
	if err != nil {
		return fmt.Errorf("make the certificate of %s: %w", name, err)
	}
	return errors.Join(
		write(filepath.Join(dir, authorityName), a.public, readable), write(filepath.Join(dir, certificateName), public, readable),
		write(filepath.Join(dir, privateName), private, readable),
	)
}

// issue makes a key and a certificate for it, signed by an authority, or by itself without one. Both are PEM.
func issue(template *x509.Certificate, by authority) (public, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	if template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127)); err != nil {
		return nil, nil, err
	}
	template.NotBefore = time.Now().Add(-time.Hour) // clocks differ
	if by.certificate == nil {
		by = authority{certificate: template, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.certificate, &key.PublicKey, by.key)
	if err != nil {
		return nil, nil, err
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}), nil
}
