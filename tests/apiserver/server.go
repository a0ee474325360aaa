package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/registry/rest"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	restclient "k8s.io/client-go/rest"
)

// serverFlags is how `apiserver` is told to run.
type serverFlags struct {
	etcd                  string
	certificates          string
	tokens                string
	port                  int
	serviceFieldSelectors bool
	watchList             bool
	forbidden             string
}

func parseServerFlags(args []string) serverFlags {
	f := serverFlags{}
	flags := flag.NewFlagSet("apiserver", flag.ExitOnError)
	flags.StringVar(&f.etcd, "etcd", "", "URL of etcd's client API")
	flags.StringVar(&f.certificates, "certificates", "", "folder of certificates; what is missing is made")
	flags.StringVar(&f.tokens, "tokens", "", "file of lines TOKEN,USER,UID; read again when it changes")
	flags.IntVar(&f.port, "port", 0, "port on 127.0.0.1; 0 takes a free one")
	flags.BoolVar(&f.serviceFieldSelectors, "service-field-selectors", true, "know spec.clusterIP as a field selector (servers before 1.31 do not)")
	flags.BoolVar(&f.watchList, "watch-list", true, "allow streaming lists (servers before 1.32 do not)")
	flags.StringVar(&f.forbidden, "forbidden", "", "file of words USER=RESOURCE that are answered with 403; read for each request")
	_ = flags.Parse(args)
	return f
}

// runApiserver serves the resources over TLS on a loopback address until it is told to stop.
func runApiserver(ctx context.Context, args []string) error {
	flags := parseServerFlags(args)
	gate := fmt.Sprintf("%s=%t", features.WatchList, flags.watchList)
	if err := utilfeature.DefaultMutableFeatureGate.Set(gate); err != nil {
		return err
	}
	server, loopback, err := newServer(flags)
	if err != nil {
		return err
	}
	ctx = untilStdinEnds(ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- server.PrepareRun().RunWithContext(ctx) }()
	if err := untilReady(ctx, loopback); err != nil {
		return err
	}
	if err := announce(loopback.Host); err != nil {
		return err
	}
	return <-stopped
}

func newServer(flags serverFlags) (*genericserver.GenericAPIServer, *restclient.Config, error) {
	scheme := newScheme(flags.serviceFieldSelectors)
	codecs := serializer.NewCodecFactory(scheme)
	config := genericserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	config.OpenAPIV3Config = newOpenAPIConfig(scheme)
	config.SkipOpenAPIInstallation = true
	config.Authorization.Authorizer = forbidden(flags.forbidden)
	// A killed server must not wait for watches that a test holds open.
	config.RequestTimeout = 5 * time.Second
	config.ShutdownWatchTerminationGracePeriod = 0
	if err := applyServing(config, flags); err != nil {
		return nil, nil, err
	}
	if err := applyStorage(config, flags, newStorageCodec(codecs)); err != nil {
		return nil, nil, err
	}
	extensions, err := newExtensions(*config, flags)
	if err != nil {
		return nil, nil, err
	}
	server, err := config.Complete(nil).New("conformance", extensions)
	if err != nil {
		return nil, nil, err
	}
	return server, config.LoopbackClientConfig, installResources(server, config, scheme, codecs)
}

func applyServing(config *genericserver.Config, flags serverFlags) error {
	if err := prepareCertificates(flags.certificates); err != nil {
		return err
	}
	serving := options.NewSecureServingOptions()
	serving.BindAddress = net.IPv4(127, 0, 0, 1)
	listener, _, err := options.CreateListener("tcp", fmt.Sprintf("127.0.0.1:%d", flags.port), net.ListenConfig{})
	if err != nil {
		return err
	}
	serving.Listener = listener
	path := filepath.Join(flags.certificates, servingName)
	serving.ServerCert.CertKey = options.CertKey{CertFile: path + ".crt", KeyFile: path + ".key"}
	if err := serving.WithLoopback().ApplyTo(&config.SecureServing, &config.LoopbackClientConfig); err != nil {
		return err
	}
	clients, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", filepath.Join(flags.certificates, clientAuthority+".crt"))
	if err != nil {
		return err
	}
	config.Authentication.Authenticator = newAuthenticator(flags.tokens, clients)
	return config.Authentication.ApplyClientCert(clients, config.SecureServing)
}

func applyStorage(config *genericserver.Config, flags serverFlags, codec runtime.Codec) error {
	return options.NewEtcdOptions(storageConfig(flags, codec)).ApplyTo(config)
}

func storageConfig(flags serverFlags, codec runtime.Codec) *storagebackend.Config {
	storage := storagebackend.NewDefaultConfig("/registry", codec)
	storage.Transport.ServerList = []string{flags.etcd}
	// Only the tests compact, when they mean to.
	storage.CompactionInterval = 0
	return storage
}

func installResources(server *genericserver.GenericAPIServer, config *genericserver.Config, scheme *runtime.Scheme, codecs serializer.CodecFactory) error {
	parameters := runtime.NewParameterCodec(scheme)
	groups := map[schema.GroupVersion]*genericserver.APIGroupInfo{}
	for _, r := range resources {
		store, err := newStore(r, scheme, config.RESTOptionsGetter)
		if err != nil {
			return err
		}
		group := groups[r.version]
		if group == nil {
			made := genericserver.NewDefaultAPIGroupInfo(r.version.Group, scheme, parameters, codecs)
			made.VersionedResourcesStorageMap[r.version.Version] = map[string]rest.Storage{}
			group = &made
			groups[r.version] = group
		}
		group.VersionedResourcesStorageMap[r.version.Version][r.plural] = store
	}
	reviews := genericserver.NewDefaultAPIGroupInfo(authorizationv1.GroupName, scheme, parameters, codecs)
	reviews.VersionedResourcesStorageMap["v1"] = map[string]rest.Storage{
		"selfsubjectaccessreviews": accessReviews{config.Authorization.Authorizer},
	}
	groups[authorizationv1.SchemeGroupVersion] = &reviews
	for version, group := range groups {
		if version.Group == "" {
			if err := server.InstallLegacyAPIGroup(genericserver.DefaultLegacyAPIPrefix, group); err != nil {
				return err
			}
		} else if err := server.InstallAPIGroup(group); err != nil {
			return err
		}
	}
	return nil
}

// untilReady waits until the server says so of itself: watch caches filled, hooks done.
func untilReady(ctx context.Context, loopback *restclient.Config) error {
	config := restclient.CopyConfig(loopback)
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme())
	config.GroupVersion = &schema.GroupVersion{}
	client, err := restclient.RESTClientFor(config)
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return client.Get().AbsPath("/readyz").Do(ctx).Error() == nil, nil
	})
}
