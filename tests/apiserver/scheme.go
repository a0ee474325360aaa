package main

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// resource is one served kind. Another kind is another row of resources.
type resource struct {
	version    schema.GroupVersion
	plural     string
	singular   string
	namespaced bool
	object     runtime.Object
	list       runtime.Object
	// extraFields are the field selectors beside metadata.name and metadata.namespace.
	extraFields func(object runtime.Object) fields.Set
}

var resources = []resource{
	{corev1.SchemeGroupVersion, "services", "service", true, &corev1.Service{}, &corev1.ServiceList{}, serviceFields},
	{corev1.SchemeGroupVersion, "endpoints", "endpoints", true, &corev1.Endpoints{}, &corev1.EndpointsList{}, nil},
	{corev1.SchemeGroupVersion, "nodes", "node", false, &corev1.Node{}, &corev1.NodeList{}, nil},
	{corev1.SchemeGroupVersion, "namespaces", "namespace", false, &corev1.Namespace{}, &corev1.NamespaceList{}, nil},
	{corev1.SchemeGroupVersion, "pods", "pod", true, &corev1.Pod{}, &corev1.PodList{}, nil},
	{corev1.SchemeGroupVersion, "events", "event", true, &corev1.Event{}, &corev1.EventList{}, nil},
	{eventsv1.SchemeGroupVersion, "events", "event", true, &eventsv1.Event{}, &eventsv1.EventList{}, nil},
	{discoveryv1.SchemeGroupVersion, "endpointslices", "endpointslice", true, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}, nil},
	{networkingv1.SchemeGroupVersion, "networkpolicies", "networkpolicy", true, &networkingv1.NetworkPolicy{}, &networkingv1.NetworkPolicyList{}, nil},
	{networkingv1.SchemeGroupVersion, "servicecidrs", "servicecidr", false, &networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}, nil},
	// What deploy/kubernetes is made of: kube-relay reads none of it.
	{corev1.SchemeGroupVersion, "serviceaccounts", "serviceaccount", true, &corev1.ServiceAccount{}, &corev1.ServiceAccountList{}, nil},
	{appsv1.SchemeGroupVersion, "daemonsets", "daemonset", true, &appsv1.DaemonSet{}, &appsv1.DaemonSetList{}, nil},
	{rbacv1.SchemeGroupVersion, "clusterroles", "clusterrole", false, &rbacv1.ClusterRole{}, &rbacv1.ClusterRoleList{}, nil},
	{rbacv1.SchemeGroupVersion, "clusterrolebindings", "clusterrolebinding", false, &rbacv1.ClusterRoleBinding{}, &rbacv1.ClusterRoleBindingList{}, nil},
	{rbacv1.SchemeGroupVersion, "roles", "role", true, &rbacv1.Role{}, &rbacv1.RoleList{}, nil},
	{rbacv1.SchemeGroupVersion, "rolebindings", "rolebinding", true, &rbacv1.RoleBinding{}, &rbacv1.RoleBindingList{}, nil},
}

func serviceFields(object runtime.Object) fields.Set {
	service := object.(*corev1.Service)
	return fields.Set{"spec.clusterIP": service.Spec.ClusterIP, "spec.type": string(service.Spec.Type)}
}

// newScheme registers every kind, also as its own internal form: no conversion code is needed then.
// Without serviceFieldSelectors, spec.clusterIP is refused as a field selector, as servers before 1.31 do.
func newScheme(serviceFieldSelectors bool) *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	for _, r := range resources {
		internal := schema.GroupVersion{Group: r.version.Group, Version: runtime.APIVersionInternal}
		scheme.AddKnownTypes(r.version, r.object, r.list)
		scheme.AddKnownTypes(internal, r.object, r.list)
		metav1.AddToGroupVersion(scheme, r.version)
		utilruntime.Must(scheme.SetVersionPriority(r.version))
		kinds, _, err := scheme.ObjectKinds(r.object)
		utilruntime.Must(err)
		known := map[string]bool{"metadata.name": true, "metadata.namespace": true}
		if r.extraFields != nil && serviceFieldSelectors {
			for name := range r.extraFields(r.object) {
				known[name] = true
			}
		}
		for _, kind := range kinds {
			utilruntime.Must(scheme.AddFieldLabelConversionFunc(kind, knownFields(known)))
		}
	}
	reviews := authorizationv1.SchemeGroupVersion
	for _, version := range []schema.GroupVersion{reviews, {Group: reviews.Group, Version: runtime.APIVersionInternal}} {
		scheme.AddKnownTypes(version, &authorizationv1.SelfSubjectAccessReview{})
	}
	metav1.AddToGroupVersion(scheme, reviews)
	utilruntime.Must(scheme.SetVersionPriority(reviews))
	return scheme
}

func knownFields(known map[string]bool) runtime.FieldLabelConversionFunc {
	return func(label, value string) (string, string, error) {
		if !known[label] {
			return "", "", fmt.Errorf("field label not supported: %s", label)
		}
		return label, value, nil
	}
}
