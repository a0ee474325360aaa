/**
 * The fields of the Kubernetes objects that `deploy/kubernetes` and the docs have: as many as are in
 * use there, none besides. The API machinery judges the same files in `tests/conformance`; this
 * table needs nothing but itself, and names a mistake by its path.
 *
 * @module
 */
import * as v from "valibot";

const text = v.string();
const texts = v.array(text);
const labels = v.record(text, text);
const port = v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(65_535));
const seconds = v.pipe(v.number(), v.integer(), v.minValue(1));
const quantity = v.pipe(text, v.regex(/^\d+(m|Mi|Gi)?$/));

const metadata = v.strictObject({
  name: text,
  namespace: v.optional(text),
  labels: v.optional(labels),
});

const probe = v.strictObject({
  httpGet: v.strictObject({ path: text, port, host: v.optional(text) }),
  periodSeconds: v.optional(seconds),
  timeoutSeconds: v.optional(seconds),
  failureThreshold: v.optional(seconds),
});

const container = v.strictObject({
  name: text,
  image: text,
  command: v.optional(texts),
  args: v.optional(texts),
  env: v.optional(v.array(v.strictObject({
    name: text,
    valueFrom: v.strictObject({ fieldRef: v.strictObject({ fieldPath: text }) }),
  }))),
  resources: v.strictObject({ requests: v.strictObject({ cpu: quantity, memory: quantity }) }),
  livenessProbe: probe,
  readinessProbe: probe,
  securityContext: v.strictObject({
    privileged: v.optional(v.boolean()),
    readOnlyRootFilesystem: v.boolean(),
    allowPrivilegeEscalation: v.optional(v.boolean()),
    capabilities: v.optional(v.strictObject({ drop: texts, add: texts })),
  }),
  volumeMounts: v.array(v.strictObject({
    name: text,
    mountPath: v.pipe(text, v.startsWith("/")),
    readOnly: v.optional(v.boolean()),
  })),
});

const volume = v.strictObject({
  name: text,
  configMap: v.optional(v.strictObject({ name: text })),
  hostPath: v.optional(v.strictObject({
    path: v.pipe(text, v.startsWith("/")),
    type: v.optional(v.picklist(["DirectoryOrCreate", "FileOrCreate", "Directory", "File"])),
  })),
});

/** A DaemonSet of apps/v1. */
export const DAEMON_SET = v.strictObject({
  apiVersion: v.literal("apps/v1"),
  kind: v.literal("DaemonSet"),
  metadata,
  spec: v.strictObject({
    selector: v.strictObject({ matchLabels: labels }),
    template: v.strictObject({
      metadata: v.strictObject({ labels }),
      spec: v.strictObject({
        serviceAccountName: text,
        hostNetwork: v.boolean(),
        priorityClassName: text,
        nodeSelector: labels,
        tolerations: v.array(v.strictObject({ operator: v.literal("Exists") })),
        terminationGracePeriodSeconds: seconds,
        containers: v.array(container),
        volumes: v.array(volume),
      }),
    }),
  }),
});

/** A ServiceAccount. */
const SERVICE_ACCOUNT = v.strictObject({
  apiVersion: v.literal("v1"),
  kind: v.literal("ServiceAccount"),
  metadata,
});

const rbac = v.literal("rbac.authorization.k8s.io/v1");
const rules = v.array(v.strictObject({ apiGroups: texts, resources: texts, verbs: texts }));
const namespaced = v.strictObject({ ...metadata.entries, namespace: text });

/** A ClusterRole of rbac.authorization.k8s.io/v1. */
export const CLUSTER_ROLE = v.strictObject({
  apiVersion: rbac,
  kind: v.literal("ClusterRole"),
  metadata,
  rules,
});

/** A Role, of one namespace. */
export const ROLE = v.strictObject({
  ...CLUSTER_ROLE.entries,
  kind: v.literal("Role"),
  metadata: namespaced,
});

/** A ClusterRoleBinding of rbac.authorization.k8s.io/v1. */
export const CLUSTER_ROLE_BINDING = v.strictObject({
  apiVersion: rbac,
  kind: v.literal("ClusterRoleBinding"),
  metadata,
  roleRef: v.strictObject({
    apiGroup: v.literal("rbac.authorization.k8s.io"),
    kind: v.literal("ClusterRole"),
    name: text,
  }),
  subjects: v.array(v.strictObject({
    kind: v.literal("ServiceAccount"),
    name: text,
    namespace: text,
  })),
});

/** A RoleBinding, of one namespace. */
export const ROLE_BINDING = v.strictObject({
  ...CLUSTER_ROLE_BINDING.entries,
  kind: v.literal("RoleBinding"),
  metadata: namespaced,
  roleRef: v.strictObject({
    ...CLUSTER_ROLE_BINDING.entries.roleRef.entries,
    kind: v.literal("Role"),
  }),
});

/** Any of them, by its kind. */
export const DEPLOYED_OBJECT = v.variant("kind", [
  DAEMON_SET,
  SERVICE_ACCOUNT,
  CLUSTER_ROLE,
  CLUSTER_ROLE_BINDING,
  ROLE,
  ROLE_BINDING,
]);

/** Returns the faults of an object, each with its path; empty if there are none. */
export function manifestProblems(object: unknown): readonly string[] {
  const { issues = [] } = v.safeParse(DEPLOYED_OBJECT, object);
  return issues.map((issue) => `${v.getDotPath(issue) ?? "(object)"}: ${issue.message}`);
}
