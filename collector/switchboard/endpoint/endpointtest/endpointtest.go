// Package endpointtest is what tests of gRPC services share: certificates and tokens of
// switches on TCP, and messages as bytes.
package endpointtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates, in files of a folder.
type Authority struct {
	t    testing.TB
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// New makes an authority: ca.crt in dir.
func New(t testing.TB, dir string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: dir}
	a.cert, a.key = a.sign("ca", &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

// CA is the file of the authority's own certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.crt") }

// Leaf signs a certificate for an address, in place of one of that name, and returns its
// files.
func (a *Authority) Leaf(name, ip string) (cert, key string) {
	a.t.Helper()
	a.sign(name, &x509.Certificate{IPAddresses: []net.IP{net.ParseIP(ip)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	return filepath.Join(a.dir, name+".crt"), filepath.Join(a.dir, name+".key")
}

// sign makes a certificate and its key, valid for an hour from an hour ago on, and writes
// both. The first one signs itself.
func (a *Authority) sign(name string, c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}

	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = c, key
	}

	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}

	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}

	for file, block := range map[string]*pem.Block{name + ".crt": {Type: "CERTIFICATE", Bytes: der}, name + ".key": {Type: "PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(filepath.Join(a.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}

	made, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}

	return made, key
}

// Token makes a file of a token.
func Token(t testing.TB, path, word string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(word+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	return path
}
