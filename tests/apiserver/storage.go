package main

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage/names"
)

// strategy takes any object as it is: the suite tests lists and watches, not validation.
type strategy struct {
	runtime.ObjectTyper
	names.NameGenerator
	namespaced bool
}

func (s strategy) NamespaceScoped() bool                                          { return s.namespaced }
func (strategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (strategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (strategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (strategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (strategy) WarningsOnCreate(context.Context, runtime.Object) []string { return nil }
func (strategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (strategy) Canonicalize(runtime.Object)    {}
func (strategy) AllowCreateOnUpdate() bool      { return false }
func (strategy) AllowUnconditionalUpdate() bool { return true }

// newStore serves one resource from etcd through a watch cache.
func newStore(r resource, scheme *runtime.Scheme, options generic.RESTOptionsGetter) (rest.Storage, error) {
	strategy := strategy{scheme, names.SimpleNameGenerator, r.namespaced}
	attributes := func(object runtime.Object) (labels.Set, fields.Set, error) {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, nil, err
		}
		set := fields.Set{"metadata.name": accessor.GetName(), "metadata.namespace": accessor.GetNamespace()}
		if r.extraFields != nil {
			for name, value := range r.extraFields(object) {
				set[name] = value
			}
		}
		return accessor.GetLabels(), set, nil
	}
	plural := schema.GroupResource{Group: r.version.Group, Resource: r.plural}
	store := &registry.Store{
		NewFunc:                   r.object.DeepCopyObject,
		NewListFunc:               r.list.DeepCopyObject,
		DefaultQualifiedResource:  plural,
		SingularQualifiedResource: schema.GroupResource{Group: r.version.Group, Resource: r.singular},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		TableConvertor:            rest.NewDefaultTableConvertor(plural),
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: options, AttrFunc: attributes})
}

// newStorageCodec writes each kind to etcd in its only version, as protobuf.
func newStorageCodec(codecs serializer.CodecFactory) runtime.Codec {
	versions := schema.GroupVersions{}
	for _, r := range resources {
		versions = append(versions, r.version)
	}
	protobuf, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	return codecs.CodecForVersions(protobuf.Serializer, codecs.UniversalDeserializer(), versions, runtime.InternalGroupVersioner)
}
