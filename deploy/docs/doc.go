// Package docs holds the operator's pages.
//
// Invariant: they name every metric and every column, and no subcommand, flag or
// file that doesn't exist; the tests hold them to it, and run the page that a new
// user reads first.
package docs
