package tail

import (
	"errors"
	"testing"
)

func TestLease(t *testing.T) {
	dir := t.TempDir()
	foreign, err := TakeLease(dir, false)
	if err != nil || !foreign.held() || foreign.Claimed() {
		t.Fatalf("TakeLease: %v, held %t, claimed %t", err, foreign.held(), foreign.Claimed())
	}

	own, err := TakeLease(dir, true)
	if !errors.Is(err, ErrLeased) || own.held() {
		t.Fatalf("second TakeLease: %v", err)
	}

	if !foreign.Claimed() {
		t.Fatal("the holder does not see the claim")
	}

	if err := foreign.Close(); err != nil {
		t.Fatal(err)
	}

	if err := own.Retry(); err != nil || !own.held() {
		t.Fatalf("Retry: %v", err)
	}

	if err := own.Close(); err != nil {
		t.Fatal(err)
	}

	if third, err := TakeLease(dir, false); err != nil || third.Claimed() || third.Close() != nil {
		t.Fatalf("after both are gone: %v", err)
	}
}
