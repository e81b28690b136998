package main

import (
	"bufio"
	"fmt"
	"net"
	"strconv"

	"github.com/laggard-dev/laggard/deploy/examples/dataparallel"
)

// The demo's slow link: the wires of one node carry this many bytes a second each way
// from two fifths of the run on, as a network card does that has fallen back to a lower speed.
const (
	demoLinkRate = 16_000_000
	demoLinkFrom = 0.4 // of the steps: before them is the past that a slow link is told by
)

// layLinks puts relays into the two wires that lead to the slow node, and their
// addresses in place of the workers' behind them.
func (d *demo) layLinks(addresses []string) error {
	if d.fault != dataparallel.LinkFault {
		return nil
	}

	first := d.slowRank / demoRanksPerNode * demoRanksPerNode
	for _, behind := range []int{first, (first + demoRanksPerNode) % demoWorld} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("listen for the link to rank %d: %w", behind, err)
		}

		d.links = append(d.links, &dataparallel.Link{Listener: listener, Target: addresses[behind]})
		addresses[behind] = listener.Addr().String()
	}

	return nil
}

// follow shows how far rank 0 has come, and slows the links when it is time.
func (d *demo) follow(lines *bufio.Scanner) {
	for lines.Scan() {
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			continue
		}

		d.progress.at(n, d.steps)
		if n >= int(demoLinkFrom*float64(d.steps)) {
			for _, l := range d.links {
				l.Limit(demoLinkRate)
			}
		}
	}
}
