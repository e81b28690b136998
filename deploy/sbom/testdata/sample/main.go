// Command sample links one module, for the test of the bill.
package main

import (
	"fmt"

	"gopkg.in/yaml.v3"
)

func main() { fmt.Println(yaml.Unmarshal(nil, nil)) }
