//go:build !amd64

package ring

const fastStores = false

func publishWords(*lane, *Words, *byte)    { panic("BUG: no fast stores on this processor") }
func openWords(*byte, *Words)              { panic("BUG: no fast stores on this processor") }
func endWords(*lane, *Words, *byte, *byte) { panic("BUG: no fast stores on this processor") }
