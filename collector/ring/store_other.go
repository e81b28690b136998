//go:build !amd64

package ring

import "sync/atomic"

const (
	ahead      = 0
	fastStores = false
)

// storeWords is not called: fastStores is false.
func storeWords(*byte, *[8]uint64) { panic("BUG: no fast stores on this processor") }

func release64(p *uint64, v uint64, _ *byte) { atomic.StoreUint64(p, v) }
func release32(p *uint32, v uint32)          { atomic.StoreUint32(p, v) }
