package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// followed is what a kube-proxy follows, as `config.go` and `server.go` of it do.
type followed struct {
	version schema.GroupVersion
	plural  string
	object  runtime.Object
	labels  string
	// own says that only the object with the name of the node is followed.
	own bool
}

const notOurs = "!service.kubernetes.io/service-proxy-name,!service.kubernetes.io/headless"

var proxyKinds = []followed{
	{corev1.SchemeGroupVersion, "services", &corev1.Service{}, notOurs, false},
	{discoveryv1.SchemeGroupVersion, "endpointslices", &discoveryv1.EndpointSlice{}, notOurs, false},
	{corev1.SchemeGroupVersion, "nodes", &corev1.Node{}, "", true},
	{networkingv1.SchemeGroupVersion, "servicecidrs", &networkingv1.ServiceCIDR{}, "", false},
}

// runFleet plays many kube-proxies: reflectors of client-go over one connection for each. It says that it
// is ready when all have their objects, and ends with its standard input.
func runFleet(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("fleet", flag.ExitOnError)
	url := flags.String("url", "", "URL of the API server")
	ca := flags.String("ca", "", "file of its CA")
	token := flags.String("token", "", "file of a token")
	nodes := flags.Int("nodes", 1, "how many kube-proxies to play; their Nodes are node-0 and so on")
	_ = flags.Parse(args)
	ctx = untilStdinEnds(ctx)
	codecs := serializer.NewCodecFactory(newScheme(true))
	var stores []cache.InformerSynced
	var running sync.WaitGroup
	for i := range *nodes {
		dialer := &net.Dialer{Timeout: 30 * time.Second}
		config := restclient.Config{
			Host: *url, BearerTokenFile: *token, QPS: -1,
			TLSClientConfig: restclient.TLSClientConfig{CAFile: *ca},
			// A transport is shared between equal configurations: one that dials by itself is not.
			Dial: dialer.DialContext,
		}
		transport, err := restclient.TransportFor(&config)
		if err != nil {
			return err
		}
		for _, kind := range proxyKinds {
			controller, err := followKind(&http.Client{Transport: transport}, *url, codecs, kind, fmt.Sprintf("node-%d", i))
			if err != nil {
				return err
			}
			stores = append(stores, controller.HasSynced)
			running.Go(func() { controller.RunWithContext(ctx) })
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), stores...) {
		return ctx.Err()
	}
	if err := announce(*url); err != nil {
		return err
	}
	running.Wait()
	return nil
}

func followKind(client *http.Client, url string, codecs serializer.CodecFactory, kind followed, node string) (cache.Controller, error) {
	path := "/apis"
	if kind.version.Group == "" {
		path = "/api"
	}
	config := restclient.Config{Host: url, APIPath: path, QPS: -1}
	config.ContentConfig = restclient.ContentConfig{
		AcceptContentTypes: "application/vnd.kubernetes.protobuf,application/json", ContentType: "application/vnd.kubernetes.protobuf",
		GroupVersion: &kind.version, NegotiatedSerializer: codecs.WithoutConversion(),
	}
	rest, err := restclient.RESTClientForConfigAndClient(&config, client)
	if err != nil {
		return nil, err
	}
	narrow := func(options *metav1.ListOptions) {
		options.LabelSelector = kind.labels
		if kind.own {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, node).String()
		}
	}
	watch := cache.NewFilteredListWatchFromClient(rest, kind.plural, metav1.NamespaceAll, narrow)
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watch, ObjectType: kind.object, Handler: cache.ResourceEventHandlerFuncs{},
	})
	return controller, nil
}
