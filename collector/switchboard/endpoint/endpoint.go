// Package endpoint is where a switch listens and how it is called: who may switch, and
// whose answer is believed.
//
// An address is "unix" (switch.sock in the ring directory), unix:PATH, any path with a
// slash in it, or HOST:PORT.
//
// Invariant: nobody switches who has not shown who he is. On a Unix socket the kernel
// says as which user the other side runs; both sides look (own uid, root, and who is
// trusted further), the server before it reads a byte, the client before it writes one.
// On TCP a certificate or a token says it, over TLS. Without both, only this machine's
// loopback is served, or what Options.Insecure allows.
//
// Caveat: any user of the machine may call a switch on loopback that asks for neither.
package endpoint

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Default is the address of the socket in the ring directory.
const Default = "unix"

// socketName is the socket's name in the ring directory.
const socketName = "switch.sock"

// tokenEnvironment names the variable that may hold the token.
const tokenEnvironment = "LAGGARD_SWITCH_TOKEN"

// minToken is the least length of a token, bytes: what can't be guessed.
const minToken = 16

// Options say who may switch and who is believed; the same for who listens and who
// calls.
type Options struct {
	RingDir string // where the address "unix" lies
	// TrustUIDs are users at the other end of a Unix socket to trust beside our own and
	// root.
	TrustUIDs []uint
	// Cert and Key are files (PEM): what a listener shows, and a caller when it is asked.
	Cert, Key string
	// CA is a file (PEM): who signed what the other side shows. A listener asks every
	// caller for a certificate then.
	CA string
	// TokenFile holds a word that every caller must say; "" takes it from the environment,
	// where it may be missing.
	TokenFile string
	// Insecure allows TCP beyond loopback without TLS, and without a proof of who calls.
	Insecure bool
}

// Flags are those that say how a switch on TCP is secured.
func (o *Options) Flags(f *pflag.FlagSet) {
	f.StringVar(&o.Cert, "switch-cert", "", "certificate for switches on TCP, PEM: a listener's, and what a caller shows")
	f.StringVar(&o.Key, "switch-key", "", "its private key")
	f.StringVar(&o.CA, "switch-ca", "", "certificates that sign the other side's; a listener then wants one of every caller (mutual TLS)")
	f.StringVar(&o.TokenFile, "switch-token-file", "", "file with the token that every caller of a switch on TCP must say (or in the environment: "+tokenEnvironment+")")
	f.BoolVar(&o.Insecure, "switch-insecure", false, "allow switches on TCP beyond 127.0.0.1 without TLS, and without certificate or token: where a network policy guards the port")
}

// CallerFlags are those of a program that only calls.
func (o *Options) CallerFlags(f *pflag.FlagSet) {
	o.Flags(f)
	f.UintSliceVar(&o.TrustUIDs, "trust-uid", nil, "further users whose agent is believed, beside this user's and root's")
}

// unixScheme begins the address of a Unix socket.
const unixScheme = "unix:"

// Parse reads an address, and returns it as Serve and Dial take it: unix:PATH or HOST:PORT.
func (o *Options) Parse(text string) (string, error) {
	path, found := strings.CutPrefix(text, unixScheme)
	switch {
	case text == Default:
		path, found = filepath.Join(o.RingDir, socketName), true
	case strings.Contains(text, "/"):
		found = true
	}

	if found && path != "" {
		return unixScheme + filepath.Clean(path), nil
	}

	if _, _, err := net.SplitHostPort(text); err != nil || found {
		return "", fmt.Errorf("address %q: want unix (the socket in the ring directory), unix:PATH, or HOST:PORT", text)
	}

	return text, nil
}

// loopback reports whether an address is this machine's alone. A name other than localhost is
// not looked up: what it stands for may change.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// token returns the word that callers say; "" none. It is read once, by who listens and by
// who dials; a file with another word holds from the next start on.
func (o *Options) token() (string, error) {
	word, from := os.Getenv(tokenEnvironment), tokenEnvironment
	if o.TokenFile != "" {
		b, err := os.ReadFile(o.TokenFile)
		if err != nil {
			return "", fmt.Errorf("read token of the switch: %w", err)
		}

		if word, from = strings.TrimSpace(string(b)), o.TokenFile; word == "" {
			return "", fmt.Errorf("read token of the switch: %s is empty", from)
		}
	}

	if word != "" && len(word) < minToken {
		return "", fmt.Errorf("read token of the switch: %s has %d bytes, want %d at least: `head -c 32 /dev/urandom | base64`", from, len(word), minToken)
	}

	return word, nil
}

// trusts reports whether a user at the other end of a Unix socket may switch, or is
// believed.
func (o *Options) trusts(uid uint32) bool {
	return uid == 0 || uid == uint32(os.Geteuid()) || slices.Contains(o.TrustUIDs, uint(uid))
}

// encrypted reports whether TCP carries TLS.
func (o *Options) encrypted() bool { return o.Cert != "" || o.CA != "" }

// Check returns an error for files that don't go together.
func (o *Options) Check() error {
	if (o.Cert == "") != (o.Key == "") {
		return errors.New("--switch-cert and --switch-key go together")
	}

	_, err := o.token()
	return err
}
