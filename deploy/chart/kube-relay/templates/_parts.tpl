{{/* The image of every container, and when it is pulled. */}}
{{- define "kube-relay.image" -}}
{{- with .Values.image -}}
image: {{ print .repository (.digest | empty | ternary ":" "@") (.digest | default .tag | default $.Chart.AppVersion) | quote }}
{{- if .pullPolicy }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}
{{- end }}
{{- end }}

{{/* What the pods of all DaemonSets have in common. */}}
{{- define "kube-relay.pod" -}}
hostNetwork: true
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toJson . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- end }}

{{/* The configuration of the ConfigMap: what the cluster needs, then the values. */}}
{{- define "kube-relay.config" -}}
{{- $needed := dict "detectLocalMode" "NodeCIDR" }}
{{- if eq .Values.cluster "kubeadm" }}
{{- $_ := set $needed "clientConnection" (dict "kubeconfig" "/var/lib/kube-proxy/kubeconfig.conf") }}
{{- else if eq .Values.cluster "k3s" }}
{{- $_ := set $needed "clientConnection" (dict "kubeconfig" "/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig") }}
{{- $_ := set $needed "healthzBindAddress" "127.0.0.1:10256" }}
{{- $_ := set $needed "conntrack" (dict "maxPerCore" 0 "tcpEstablishedTimeout" "0s" "tcpCloseWaitTimeout" "0s") }}
{{- end }}
{{- with .Values.mode }}
{{- $_ := set $needed "mode" . }}
{{- end }}
{{- $type := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" }}
{{- toYaml (mustMergeOverwrite $needed (deepCopy .Values.config) $type) }}
{{- end }}

{{/* The subject of the bindings. On k3s it is the identity of the kubeconfig. */}}
{{- define "kube-relay.subject" -}}
{{- if eq .Values.cluster "k3s" -}}
- apiGroup: rbac.authorization.k8s.io
  kind: User
  name: system:kube-proxy
{{- else -}}
- kind: ServiceAccount
  name: {{ .Values.serviceAccount.name | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}
{{- end }}
