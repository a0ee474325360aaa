package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
)

// runEtcd serves one etcd member without authentication on a loopback address.
func runEtcd(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("etcd", flag.ExitOnError)
	data := flags.String("data", "", "folder of the data; kept, so that a restart continues")
	port := flags.Int("port", 0, "port of the client API on 127.0.0.1; 0 takes a free one")
	_ = flags.Parse(args)

	config := embed.NewConfig()
	config.Dir = filepath.Join(*data, "etcd")
	config.LogLevel = "error"
	config.LogOutputs = []string{"stderr"}
	// Tests kill the process, never the kernel: what was written is in the page cache and stays.
	config.UnsafeNoFsync = true
	// A single member elects itself: a short election makes the start 10 times faster.
	config.TickMs, config.ElectionMs = 10, 100
	config.QuotaBackendBytes = 4 << 30
	// Its gateway would dial the port 0 that is asked for, for ever.
	config.EnableGRPCGateway = false
	config.ListenClientUrls = []url.URL{{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", *port)}}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)

	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	case <-time.After(time.Minute):
		return fmt.Errorf("the member was not ready after a minute")
	}
	if err := announce("http://" + etcd.Clients[0].Addr().String()); err != nil {
		return err
	}
	select {
	case <-untilStdinEnds(ctx).Done():
		return nil
	case err := <-etcd.Err():
		return err
	}
}

// runCompact forgets every revision before the present one.
func runCompact(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("compact", flag.ExitOnError)
	endpoint := flags.String("etcd", "", "URL of etcd's client API")
	_ = flags.Parse(args)

	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, Context: ctx})
	if err != nil {
		return err
	}
	defer client.Close()
	present, err := client.Get(ctx, "any key")
	if err != nil {
		return err
	}
	_, err = client.Compact(ctx, present.Header.Revision, clientv3.WithCompactPhysical())
	// Nothing was written since the last time.
	if errors.Is(err, rpctypes.ErrCompacted) {
		return nil
	}
	return err
}
