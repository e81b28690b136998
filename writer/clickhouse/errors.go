package clickhouse

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/laggard-dev/laggard/writer/ship"
)

// Codes of server exceptions that change what is done. All others are retried:
// to drop a row because of a code that nobody here knows would be a loss.
var (
	// poisonCodes are raised by values: a constraint, an expression of a
	// materialised or default column, a text that does not parse. The numbers are those of
	// ErrorCodes.cpp in the server's source; they never change their meaning.
	poisonCodes = map[int32]bool{
		6: true, 26: true, 27: true, 38: true, 41: true, 69: true, 72: true, 117: true, 131: true,
		153: true, 321: true, 349: true, 395: true, 407: true, 469: true, 691: true,
	}
	// refusedCodes: the tables, the rights or the password are not as they must be.
	refusedCodes = map[int32]string{
		8: "schema", 10: "schema", 15: "schema", 16: "schema", 20: "schema", 36: "schema", 43: "schema", 44: "schema", 47: "schema",
		48: "schema", 50: "schema", 53: "schema", 57: "schema", 60: "schema", 62: "schema", 70: "schema", 81: "database", 115: "setting", 122: "schema",
		164: "rights", 192: "password", 193: "password", 194: "password", 195: "rights", 291: "rights",
		452: "rights", 497: "rights", 516: "password",
	}
	hints = map[string]string{
		"schema":   "compare the tables with `laggard schema print`, put them right, and shipping goes on by itself",
		"database": "create the database or correct its name in the store URL",
		"setting":  "this server knows none of a setting that was sent; report its version",
		"rights":   "give the user INSERT and SELECT on the tables (and CREATE, or make them with `laggard schema apply`)",
		"password": "correct the user in the store URL or the password in LAGGARD_CLICKHOUSE_PASSWORD or password_file",
	}
	// sameQueryRunning: the first attempt is still under way.
	sameQueryRunning int32 = 216
	// tooManyParts: merges don't keep up with inserts. tooManyQueries: nor does the server
	// with questions.
	tooManyParts, tooManyQueries int32 = 252, 202
)

// classify turns an error of the client or the server into what the shipper must
// do. The text names the store, never a secret.
func (s *Sink) classify(what string, err error) *ship.Error {
	var own *ship.Error
	if errors.As(err, &own) {
		return own
	}

	e := &ship.Error{Class: ship.Transient, Err: fmt.Errorf("%s of store %s: %w", what, s.address, err)}
	var exception *clickhouse.Exception
	if errors.As(err, &exception) {
		switch kind, refuses := refusedCodes[exception.Code]; {
		case refuses:
			e.Class, e.Hint = ship.Refused, hints[kind]
		case poisonCodes[exception.Code]:
			e.Class = ship.Poison
		case exception.Code == tooManyParts:
			e.Busy, e.Hint = true, "insert less often: a longer --flush, more shards, or parts_to_throw_insert 3000 in the server's <merge_tree> where the table still has 300"
		case exception.Code == tooManyQueries:
			e.Busy, e.Hint = true, "raise max_concurrent_queries, or let agents flush less often"
		case exception.Code == sameQueryRunning:
			e.Doubt = true
		}

		return e
	}

	if isTLS(err) {
		e.Class, e.Hint = ship.Refused, "check ca=, server_name= and the certificate's dates"
		return e
	}

	var dns *net.DNSError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Hint = "start the server, or correct host and port in the store URL (the native protocol's port, 9000 by default)"
	case errors.As(err, &dns):
		e.Hint = "correct the host in the store URL"
	}

	return e
}

// isTLS reports whether a certificate, or a port that speaks no TLS, is at fault: another try does no
// better before somebody puts it right.
func isTLS(err error) bool {
	var (
		invalid   x509.CertificateInvalidError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		verify    *tls.CertificateVerificationError
		header    tls.RecordHeaderError
	)
	return errors.As(err, &invalid) || errors.As(err, &authority) || errors.As(err, &host) ||
		errors.As(err, &verify) || errors.As(err, &header)
}

// refused is an error that pauses the shipper until somebody has followed the hint.
func refused(err error, hint string) *ship.Error {
	return &ship.Error{Class: ship.Refused, Err: err, Hint: hint}
}
