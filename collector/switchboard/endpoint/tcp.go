package endpoint

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// mayServe returns why TCP may not be served like this.
func (o *Options) mayServe(at, token string) error {
	if loopback(at) || o.Insecure || o.Cert != "" && (o.CA != "" || token != "") {
		return nil
	}

	return fmt.Errorf("anybody who reaches %s could switch: give --switch-cert and --switch-key, and --switch-ca (mutual TLS) or --switch-token-file; or --switch-insecure where a network policy guards the port", at)
}

// mayCall returns why TCP may not be called like this.
func (o *Options) mayCall(at string) error {
	if loopback(at) || o.Insecure || o.encrypted() {
		return nil
	}

	return fmt.Errorf("nobody knows who answers at %s: give --switch-ca (TLS), or --switch-insecure where a network policy guards the port", at)
}

// pair loads the certificate anew for each handshake: it is renewed under us (by
// cert-manager, say), and connections that are open stay so.
func (o *Options) pair() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return nil, fmt.Errorf("load certificate of the switch: %w", err)
	}

	return &c, nil
}

// authorities returns who signs the other side's certificates; nil the system's.
func (o *Options) authorities() (*x509.CertPool, error) {
	if o.CA == "" {
		return nil, nil
	}

	pem, err := os.ReadFile(o.CA)
	if err != nil {
		return nil, fmt.Errorf("read --switch-ca: %w", err)
	}

	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("read --switch-ca %s: no certificate (PEM) in it", o.CA)
	}

	return pool, nil
}

// listening are the credentials of a listener on TCP. A certificate that can't be loaded is
// an error now, not at the first handshake.
func (o *Options) listening() (credentials.TransportCredentials, error) {
	if o.Cert == "" {
		return insecure.NewCredentials(), nil
	}

	if _, err := o.pair(); err != nil {
		return nil, err
	}

	pool, err := o.authorities()
	if err != nil {
		return nil, err
	}

	c := &tls.Config{MinVersion: tls.VersionTLS12, ClientCAs: pool,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return o.pair() }}
	if pool != nil {
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}

	return credentials.NewTLS(c), nil
}

// calling are the credentials of a caller over TCP. It shows its certificate when it has one
// and the listener asks for it (Options.CA there).
func (o *Options) calling() (credentials.TransportCredentials, error) {
	if !o.encrypted() {
		return insecure.NewCredentials(), nil
	}

	pool, err := o.authorities()
	if err != nil {
		return nil, err
	}

	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	if o.Cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.pair() }
	}

	return credentials.NewTLS(c), nil
}

// The token travels as OAuth's do (RFC 6750), so that proxies know it for a secret.
const (
	tokenKey    = "authorization"
	tokenScheme = "Bearer "
)

// bearer says the token with each call. mayCall has looked at what carries it.
type bearer string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{tokenKey: tokenScheme + string(b)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials. gRPC would refuse the
// token without TLS, which loopback, and what Options.Insecure allows, does without.
func (bearer) RequireTransportSecurity() bool { return false }

// asks is a server's option that wants the token with each call, before anything of it is read but its
// headers.
func asks(token string) grpc.ServerOption {
	return grpc.InTapHandle(func(ctx context.Context, call *tap.Info) (context.Context, error) {
		for _, v := range call.Header[tokenKey] {
			word, ok := strings.CutPrefix(v, tokenScheme)
			if ok && subtle.ConstantTimeCompare([]byte(word), []byte(token)) == 1 {
				return ctx, nil
			}
		}

		return nil, status.Error(codes.Unauthenticated, "the switch wants its token: --switch-token-file or "+tokenEnvironment)
	})
}
