package main

import (
	"go.opentelemetry.io/otel/trace/noop"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	extensionsoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apimachinery/pkg/runtime/schema"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/webhook"
)

// newExtensions serves CustomResourceDefinitions and their objects, as the part of kube-apiserver that
// answers what its own kinds do not.
func newExtensions(config genericserver.Config, flags serverFlags) (*genericserver.GenericAPIServer, error) {
	versions := schema.GroupVersions{extensionsv1.SchemeGroupVersion}
	codec := apiserver.Codecs.LegacyCodec(versions...)
	config.PostStartHooks = map[string]genericserver.PostStartHookConfigEntry{}
	config.Serializer = apiserver.Codecs
	config.MergedResourceConfig = apiserver.DefaultAPIResourceConfigSource()
	config.OpenAPIV3Config = genericserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, openapinamer.NewDefinitionNamer(apiserver.Scheme))
	config.OpenAPIV3Config.Info.Title = apiextensions.GroupName
	if err := applyStorage(&config, flags, codec); err != nil {
		return nil, err
	}
	etcd := options.NewEtcdOptions(storageConfig(flags, codec))
	extensions := apiserver.Config{
		GenericConfig: &genericserver.RecommendedConfig{Config: config},
		ExtraConfig: apiserver.ExtraConfig{
			CRDRESTOptionsGetter: extensionsoptions.NewCRDRESTOptionsGetter(*etcd, config.ResourceTransformers, config.StorageObjectCountTracker),
			MasterCount:          1,
			ServiceResolver:      webhook.NewDefaultServiceResolver(),
			AuthResolverWrapper:  webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, nil, config.LoopbackClientConfig, noop.NewTracerProvider()),
		},
	}
	served, err := extensions.Complete().New(genericserver.NewEmptyDelegate())
	if err != nil {
		return nil, err
	}
	return served.GenericAPIServer, nil
}
