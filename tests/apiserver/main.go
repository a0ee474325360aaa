// Command apiserver is the real API machinery that the conformance suite runs against: the library
// that kube-apiserver is made of, over an embedded etcd, with the kinds that a service proxy reads.
//
// The parts are subcommands, so that a test can kill, freeze and restart each of them alone. Whoever
// starts `etcd` or `apiserver` reads one line of JSON from its standard output once it is ready, and
// keeps its standard input open: when that ends, the process ends too, so that a test run that was
// killed leaves nothing behind.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

var subcommands = map[string]func(ctx context.Context, args []string) error{
	"etcd":        runEtcd,
	"compact":     runCompact,
	"apiserver":   runApiserver,
	"marshal":     runMarshal,
	"certificate": runCertificate,
	"fleet":       runFleet,
}

func main() {
	if len(os.Args) < 2 || subcommands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "Usage: apiserver etcd|compact|apiserver|certificate|fleet|marshal [flags]")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := subcommands[os.Args[1]](ctx, os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "Cannot run %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// untilStdinEnds returns a context that also ends when standard input does.
func untilStdinEnds(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

// announce tells the starter that the process is ready, and at which URL.
func announce(url string) error {
	return json.NewEncoder(os.Stdout).Encode(map[string]string{"url": url})
}
