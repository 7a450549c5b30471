package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// authority signs a cluster's certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// identity is a client of the API server: what RBAC knows it as.
type identity struct {
	user   string
	groups []string
}

// validity is longer than any development cluster lives.
const validity = 365 * 24 * time.Hour

// writeCertificates makes the cluster's authority, the API server's certificate and the key of service accounts.
func (c *Cluster) writeCertificates() (*authority, error) {
	ca, err := newAuthority()
	if err != nil {
		return nil, err
	}
	if err := writePair(c.path(pkiDir, "ca"), ca.certificate.Raw, ca.key); err != nil {
		return nil, err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: APIServer},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		IPAddresses: []net.IP{net.ParseIP(c.Address), net.IPv4(127, 0, 0, 1), net.ParseIP(c.firstServiceAddress())},
	}
	certificate, key, err := ca.sign(server)
	if err != nil {
		return nil, err
	}
	if err := writePair(c.path(pkiDir, "apiserver"), certificate, key); err != nil {
		return nil, err
	}
	certificate, key, err = ca.sign(clientCertificate(identity{user: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}}))
	if err != nil {
		return nil, err
	}
	if err := writePair(c.path(pkiDir, "apiserver-kubelet-client"), certificate, key); err != nil {
		return nil, err
	}
	key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate service account key: %w", err)
	}
	return ca, writePair(c.path(pkiDir, "sa"), nil, key)
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate authority key: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "switchyard-devcluster"},
		NotBefore:             time.Now().Add(-time.Minute),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("create authority certificate: %w", err)
	}
	certificate, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, fmt.Errorf("parse authority certificate: %w", err)
	}
	return &authority{certificate: certificate, key: key}, nil
}

func clientCertificate(who identity) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: who.user, Organization: who.groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

// sign completes template and gives the certificate in DER with its new key.
func (a *authority) sign(template *x509.Certificate) ([]byte, *ecdsa.PrivateKey, error) {
	name := template.Subject.CommonName
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("generate key of %s: %w", name, err)
	}
	template.SerialNumber, err = rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("draw serial number of %s: %w", name, err)
	}
	template.NotBefore = a.certificate.NotBefore
	template.NotAfter = a.certificate.NotAfter
	template.KeyUsage = x509.KeyUsageDigitalSignature
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign certificate of %s: %w", name, err)
	}
	return raw, key, nil
}

// writePair writes base.crt, unless there is no certificate, and base.key.
func writePair(base string, certificate []byte, key *ecdsa.PrivateKey) error {
	encoded, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(base+".key", encoded, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if certificate == nil {
		return nil
	}
	if err := os.WriteFile(base+".crt", encodeCertificate(certificate), 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	return nil
}

func encodeCertificate(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	raw, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}), nil
}
