package main

import (
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// newOpenAPIConfig describes every kind as "an object with any fields": enough for the field manager,
// which the library insists on, without the generated definitions of kube-apiserver.
func newOpenAPIConfig(scheme *runtime.Scheme) *common.OpenAPIV3Config {
	definitions := func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
		found := map[string]common.OpenAPIDefinition{}
		for _, r := range resources {
			for _, object := range []runtime.Object{r.object, r.list} {
				found[openapiutil.GetCanonicalTypeName(object)] = anyObject()
			}
		}
		found[openapiutil.GetCanonicalTypeName(&authorizationv1.SelfSubjectAccessReview{})] = anyObject()
		return found
	}
	config := genericserver.DefaultOpenAPIV3Config(definitions, openapinamer.NewDefinitionNamer(scheme))
	config.Info.Title = "kube-relay conformance"
	return config
}

func anyObject() common.OpenAPIDefinition {
	var any spec.Schema
	any.Type = []string{"object"}
	any.AddExtension("x-kubernetes-preserve-unknown-fields", true)
	return common.OpenAPIDefinition{Schema: any}
}
