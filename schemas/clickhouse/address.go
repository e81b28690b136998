package clickhouse

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
)

// PasswordEnvironment names the variable that holds the store's password.
const PasswordEnvironment = "LAGGARD_CLICKHOUSE_PASSWORD"

// Scheme is the prefix of a ClickHouse store.
const Scheme = "clickhouse://"

// Address is a parsed store URL:
//
//	clickhouse://user@host:9000/database?secure=true&ca=FILE&server_name=NAME&password_file=FILE
//
// Several hosts (h1:9000,h2:9000) are the replicas of one shard. With cluster=NAME they are
// any servers of that cluster: who writes chooses a shard of it (writer/clickhouse).
//
// protocol=http speaks the HTTP interface (port 8123, with TLS 8443) of a current
// server, where a firewall or a managed service lets nothing else through;
// compression=none is for a server that takes none.
//
// The password comes from password_file, else from PasswordEnvironment; a
// URL that holds one is refused, because every process list shows it.
type Address struct {
	Host         string   // host:port that is spoken to
	Hosts        []string // all of them, each host:port
	Cluster      string   // of which a writer chooses its shard; "" Hosts are the shard
	User         string   // "default" when the URL names none
	Database     string   // "default" when the URL names none
	PasswordFile string   // read at every connect, so a rotated password needs no restart

	HTTP       bool // the HTTP interface instead of the native protocol
	Plain      bool // no LZ4
	Secure     bool
	CAFile     string // PEM; "" is the system's
	ServerName string // the name in the server's certificate; "" is the host
	CertFile   string // client certificate and key, PEM
	KeyFile    string
}

// ParseAddress reads a store URL.
func ParseAddress(spec string) (Address, error) {
	spec, others := splitHosts(spec)
	u, err := url.Parse(spec)
	if err != nil {
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // the URL itself may hold a secret
		}

		return Address{}, fmt.Errorf("parse ClickHouse store: %w; want clickhouse://user@host:9000/database", err)
	}

	if u.Scheme+"://" != Scheme || u.Host == "" {
		return Address{}, fmt.Errorf("parse ClickHouse store: no host; want clickhouse://user@host:9000/database")
	}

	if _, has := u.User.Password(); has {
		return Address{}, fmt.Errorf("parse ClickHouse store: the URL holds a password, which every process list shows; "+
			"put it into the environment (%s) or into a file (?password_file=FILE)", PasswordEnvironment)
	}

	a := Address{Host: u.Host, User: u.User.Username(), Database: strings.Trim(u.Path, "/")}
	if a.User == "" {
		a.User = "default"
	}

	if a.Database == "" {
		a.Database = "default"
	}

	if err := a.parameters(u.Query()); err != nil {
		return Address{}, err
	}

	for _, host := range append([]string{u.Host}, others...) {
		one, err := url.Parse(Scheme + host)
		if err != nil || one.Host != host || one.Hostname() == "" {
			return Address{}, fmt.Errorf("parse ClickHouse store: %q is no host; want host:port, several with commas between", host)
		}

		if one.Port() == "" {
			host = net.JoinHostPort(one.Hostname(), a.defaultPort())
		}

		if !slices.Contains(a.Hosts, host) {
			a.Hosts = append(a.Hosts, host)
		}
	}

	a.Host = a.Hosts[0]
	return a, nil
}

// splitHosts takes all hosts but the first out of a store URL.
func splitHosts(spec string) (string, []string) {
	scheme, rest, _ := strings.Cut(spec, "://")
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}

	user := strings.LastIndexByte(rest[:end], '@') + 1
	hosts := strings.Split(rest[user:end], ",")
	if len(hosts) == 1 {
		return spec, nil
	}

	return scheme + "://" + rest[:user] + hosts[0] + rest[end:], hosts[1:]
}

// defaultPort is the port on which a server that nobody configured otherwise listens.
func (a *Address) defaultPort() string {
	switch {
	case a.HTTP && a.Secure:
		return "8443"
	case a.HTTP:
		return "8123"
	case a.Secure:
		return "9440"
	}

	return "9000"
}

// parameters reads what follows the '?'. An unknown one is an error: a misspelt secure would send rows in the clear.
func (a *Address) parameters(q url.Values) error {
	texts := map[string]*string{
		"ca": &a.CAFile, "server_name": &a.ServerName, "cert": &a.CertFile, "key": &a.KeyFile,
		"password_file": &a.PasswordFile, "cluster": &a.Cluster,
	}
	for key := range q {
		value := q.Get(key)
		switch dst, ok := texts[key]; {
		case ok:
			*dst = value
		case key == "protocol" && (value == "http" || value == "native"):
			a.HTTP = value == "http"
		case key == "compression" && (value == "none" || value == "lz4"):
			a.Plain = value == "none"
		case key == "secure" && (value == "true" || value == "1" || value == ""):
			a.Secure = true
		case key == "secure" && (value == "false" || value == "0"):
			a.Secure = false
		default:
			return fmt.Errorf("parse ClickHouse store: parameter %s=%q; known: protocol=native|http, compression=lz4|none, secure=true|false, ca, server_name, cert, key, password_file, cluster", key, value)
		}
	}

	return nil
}

// String is the store without secrets: fit for logs and for the cursor's name.
func (a Address) String() string {
	s := Scheme + a.User + "@" + strings.Join(a.Hosts, ",") + "/" + a.Database
	if a.Cluster != "" {
		s += "?cluster=" + url.QueryEscape(a.Cluster)
	}

	return s
}

// Password reads the password: the file's first line, else the environment.
func (a Address) Password() (string, error) {
	if a.PasswordFile == "" {
		return os.Getenv(PasswordEnvironment), nil
	}

	b, err := os.ReadFile(a.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("read ClickHouse password: %w", err)
	}

	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSuffix(line, "\r"), nil
}

// TLS returns the configuration of an encrypted connection, nil for a plain one.
// Certificates are always verified.
func (a Address) TLS() (*tls.Config, error) {
	if !a.Secure {
		return nil, nil
	}

	name := a.ServerName
	if name == "" {
		name, _, _ = net.SplitHostPort(a.Host)
	}

	c := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if a.CAFile != "" {
		pem, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read CA: %w", err)
		}

		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read CA %s: no certificate in it", a.CAFile)
		}
	}

	if a.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(a.CertFile, a.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read client certificate: %w", err)
		}

		c.Certificates = []tls.Certificate{cert}
	}

	return c, nil
}
