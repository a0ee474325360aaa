/**
 * Tests the manifests: every named object exists, and rights and arguments are those that are needed.
 * That the API has every field is tested in tests/conformance.
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { VERSION } from "../../lib/config/version.ts";
import { loadConfiguration } from "../../lib/config/load.ts";
import { parseFlags } from "../../lib/config/parse_flags.ts";
import { ROUTING_OBJECT_KINDS } from "../../lib/api/kinds/routing_objects.ts";
import { schemaNode } from "../../lib/api/schema_node.ts";
import { NODE } from "../../lib/api/kinds/node.ts";
import type { KindSpec } from "../../lib/api/kind.ts";
import { POLICY_ACCESS, POLICY_KINDS } from "../../lib/app/policy/policy_settings.ts";
import { routingAccess } from "../../lib/app/routing/routing_access.ts";
import { EVERYTHING } from "../../lib/policy/label_selector.ts";
import { ROUTING_SETTINGS } from "../../tests/support/builders/planned_routing.ts";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import { SERVICE_KINDS } from "../../lib/app/service/service_subscriptions.ts";
import {
  MANIFESTS,
  parseManifest,
  readDeployFile,
  readManifest,
} from "../../tests/support/docs/deploy_files.ts";

const CLEANUP = "kubernetes/cleanup.yaml";
/** Those that run kube-relay. */
const DAEMON_SETS = MANIFESTS.filter((path) =>
  !/(rbac|crds)\.yaml$/.test(path) && path !== CLEANUP
);
const K3S = "kubernetes/k3s.yaml";
/** Where k3s keeps the kubeconfig of its kube-proxy, and the certificates that it names. */
const K3S_AGENT = "/var/lib/rancher/k3s/agent";

/** The ConfigMap that kubeadm writes, shortened. */
const KUBEADM_CONFIGURATION = `
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: 0.0.0.0
clientConnection: { kubeconfig: /var/lib/kube-proxy/kubeconfig.conf, qps: 0 }
clusterCIDR: 10.244.0.0/16
healthzBindAddress: ""
metricsBindAddress: ""
mode: ""
`;

interface Probe {
  readonly httpGet: { readonly host?: string; readonly path: string; readonly port: number };
}

interface Container {
  readonly image: string;
  readonly args?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly {
    readonly name: string;
    readonly valueFrom: { readonly fieldRef: { readonly fieldPath: string } };
  }[];
  readonly livenessProbe: Probe;
  readonly readinessProbe: Probe;
  readonly securityContext: { readonly privileged?: boolean };
  readonly volumeMounts: readonly {
    readonly name: string;
    readonly mountPath: string;
    readonly readOnly?: boolean;
  }[];
}

/** The fields of a pod that are looked at. */
interface Pod {
  readonly serviceAccountName?: string;
  readonly automountServiceAccountToken?: boolean;
  readonly hostNetwork: boolean;
  readonly priorityClassName: string;
  readonly tolerations: readonly object[];
  readonly terminationGracePeriodSeconds: number;
  readonly volumes: readonly {
    readonly name: string;
    readonly hostPath?: { readonly path: string; readonly type?: string };
  }[];
  readonly initContainers?: readonly Container[];
  readonly containers: readonly Container[];
}

interface DaemonSet {
  readonly metadata: { readonly namespace: string };
  readonly spec: {
    readonly selector: { readonly matchLabels: object };
    readonly template: { readonly metadata: { readonly labels: object }; readonly spec: Pod };
  };
}

interface Binding {
  readonly roleRef: { readonly kind: string; readonly name: string };
  readonly subjects: readonly { readonly name: string; readonly namespace: string }[];
}

async function daemonSet(path: string): Promise<DaemonSet> {
  const [object, ...others] = await readManifest(path);
  assertEquals(others, []);
  return object as unknown as DaemonSet;
}

async function podOf(path: string) {
  const { spec: { template: { spec } } } = await daemonSet(path);
  const [container, ...others] = spec.containers;
  assertEquals(others, []);
  return { ...spec, container: container! };
}

Deno.test("parseManifest() refuses a key that is given twice", () => {
  const read = () => parseManifest("kind: Node\nkind: Pod\n", "twice.yaml");
  assertThrows(read, Error, "twice.yaml:2");
});

for (const path of DAEMON_SETS) {
  Deno.test(`the files to which deploy/${path} refers exist`, async () => {
    const { metadata, spec: { selector, template } } = await daemonSet(path);
    const { volumes, serviceAccountName, automountServiceAccountToken, container } = await podOf(
      path,
    );
    // A DaemonSet leaves the pods of another one alone, so kube-proxy's does not adopt these.
    assertEquals(template.metadata.labels, { ...selector.matchLabels, "k8s-app": "kube-proxy" });
    assertEquals(
      container.volumeMounts.map(({ name }) => name),
      volumes.map(({ name }) => name),
    );
    assert(container.image.endsWith(`:${VERSION}`), `${container.image} is not ${VERSION}`);
    if (path === K3S) {
      return assertEquals([serviceAccountName, automountServiceAccountToken], [undefined, false]);
    }
    const accounts = (await readManifest("kubernetes/rbac.yaml"))
      .filter(({ kind }) => kind === "ServiceAccount")
      .map((account) => `${account.metadata.namespace}/${account.metadata.name}`);
    assertEquals(accounts, [`${metadata.namespace}/${serviceAccountName}`]);
  });

  Deno.test(`the arguments of deploy/${path} are taken by the real parser`, async () => {
    const { container } = await podOf(path);
    const args = (container.args ?? []).map((arg) => arg.replace("$(NODE_NAME)", "node-1"));
    const { values, positionals, problems } = parseFlags(args);
    assertEquals([problems, positionals], [[], []]);
    const readTextFile = () => Promise.resolve(KUBEADM_CONFIGURATION);
    const { proxy, mode } = await loadConfiguration(
      { uid: 0, env: () => undefined, readTextFile },
      {
        flags: values,
      },
    );
    assertEquals(proxy.hostnameOverride, "node-1");
    assertEquals(
      proxy.clientConnection.kubeconfig,
      path === K3S ? `${K3S_AGENT}/kubeproxy.kubeconfig` : "/var/lib/kube-proxy/kubeconfig.conf",
    );
    assertEquals(mode, path.includes("userspace") ? "userspace" : "default");
    assertEquals(proxy.healthzBindAddress, path === K3S ? "127.0.0.1:10256" : "0.0.0.0:10256");
  });

  Deno.test(`deploy/${path} runs on every node, and keeps the state that outlives a pod`, async () => {
    const pod = await podOf(path);
    assertEquals(
      [pod.hostNetwork, pod.priorityClassName, pod.tolerations],
      [true, "system-node-critical", [{ operator: "Exists" }]],
    );
    assert(pod.terminationGracePeriodSeconds > 10, "--drain-timeout is 10 s");
    const { livenessProbe, readinessProbe, env = [] } = pod.container;
    // The kube-proxy of k3s answers on loopback only, while kube-relay waits for its port.
    const host = path === K3S && { host: "127.0.0.1" };
    assertEquals(
      [livenessProbe.httpGet, readinessProbe.httpGet],
      [{ ...host, path: "/livez", port: 10_256 }, { ...host, path: "/healthz", port: 10_256 }],
    );
    assertEquals(env.map(({ name, valueFrom }) => [name, valueFrom.fieldRef.fieldPath]), [
      ["NODE_NAME", "spec.nodeName"],
    ]);
    const kept = pod.volumes.find(({ hostPath }) => hostPath?.path === "/run/kube-relay");
    assertEquals(kept?.hostPath?.type, "DirectoryOrCreate");
  });
}

Deno.test("deploy/kubernetes/k3s.yaml has the flags of deploy/k3s.conf, and their files", async () => {
  const { container, volumes } = await podOf(K3S);
  const [, flags = ""] = /^Environment="KUBE_RELAY_K3S_ARGS=(.*)"$/m
    .exec(await readDeployFile("k3s.conf"))!;
  assertEquals(container.args, flags.replace("%H", "$(NODE_NAME)").split(" "));
  const agent = volumes.find(({ hostPath }) => hostPath?.path === K3S_AGENT);
  // The kubeconfig names its certificates by absolute paths.
  const mount = container.volumeMounts.find(({ name }) => name === agent?.name);
  assertEquals(mount, { name: agent!.name, mountPath: K3S_AGENT, readOnly: true });
});

Deno.test("deploy/kubernetes/cleanup.yaml cleans every node up that kube-relay can run on, and then waits", async () => {
  const pod = await podOf(CLEANUP);
  const relay = await podOf(K3S);
  const { metadata, spec: { selector, template } } = await daemonSet(CLEANUP);
  assertEquals(template.metadata.labels, selector.matchLabels);
  const of = ({ hostNetwork, priorityClassName, tolerations }: Pod) => [
    ...[hostNetwork, priorityClassName, tolerations],
  ];
  assertEquals(of(pod), of(relay));
  assertEquals([metadata.namespace, pod.automountServiceAccountToken], ["kube-system", false]);
  const [cleanup, ...others] = pod.initContainers ?? [];
  assertEquals(others, []);
  assertEquals([cleanup!.image, pod.container.image], [
    relay.container.image,
    relay.container.image,
  ]);
  assertEquals(cleanup!.args, ["--cleanup"]);
  assertEquals(cleanup!.securityContext, relay.container.securityContext);
  // Everything but the credentials: what was recorded on the node is what is removed. A user who
  // enables the network of pods adds the folder of CNI.
  const notCredentials = ({ name }: { readonly name: string }) => name !== "k3s-agent";
  assertEquals(cleanup!.volumeMounts, [
    ...relay.container.volumeMounts.filter(notCredentials),
    { name: "cni", mountPath: "/etc/cni/net.d" },
  ]);
  assertEquals(pod.volumes, [
    ...relay.volumes.filter(notCredentials),
    { name: "cni", hostPath: { path: "/etc/cni/net.d", type: "DirectoryOrCreate" } },
  ]);
  assertEquals(pod.container.command, ["sleep", "infinity"]);
});

/** Returns the permissions that a ClusterRole grants, sorted. */
function grantedBy(role: unknown): readonly string[] {
  const { rules } = role as {
    readonly rules: readonly Readonly<
      Record<"apiGroups" | "resources" | "verbs", readonly string[]>
    >[];
  };
  return rules.flatMap(({ apiGroups, resources, verbs }) =>
    apiGroups.flatMap((group) =>
      resources.flatMap((resource) => verbs.map((verb) => `${verb} ${group}/${resource}`))
    )
  ).toSorted();
}

function listAndWatch(kinds: readonly KindSpec[]): readonly string[] {
  return kinds.flatMap(({ group, plural }) =>
    ["list", "watch"].map((verb) => `${verb} ${group}/${plural}`)
  );
}

Deno.test("the ClusterRole has the rights that are needed, and none besides", async () => {
  const [, role] = await readManifest("kubernetes/rbac.yaml");
  const needed = [
    ...listAndWatch(SERVICE_KINDS),
    "get /nodes",
    ...["", "events.k8s.io"].flatMap((group) =>
      ["create", "patch", "update"].map((verb) => `${verb} ${group}/events`)
    ),
  ];
  assertEquals(grantedBy(role), needed.toSorted());
});

Deno.test("the ClusterRole for NetworkPolicy has the rights that are asked for, and none besides", async () => {
  const [role, binding] = await readManifest("kubernetes/network-policy-rbac.yaml");
  assertEquals(grantedBy(role), listAndWatch([...POLICY_KINDS, NODE]).toSorted());
  const { roleRef, subjects } = binding as unknown as Binding;
  assertEquals(roleRef.name, role?.metadata.name);
  const [account] = await readManifest("kubernetes/rbac.yaml");
  assertEquals(subjects.map(({ name }) => name), [account?.metadata.name]);
  assertEquals(role?.metadata.name, POLICY_ACCESS.clusterRole, "doctor prints this name");
});

Deno.test("the roles for routing have the rights that are asked for, and none besides", async () => {
  const [clusterRole, clusterBinding, role, binding] = await readManifest(
    "kubernetes/routing-rbac.yaml",
  );
  const selecting = pool("a", ["192.0.2.0/28"], { namespaceSelector: EVERYTHING });
  const { accesses, clusterRole: name } = routingAccess({
    ...ROUTING_SETTINGS,
    pools: [selecting],
    objects: true,
  });
  const asked = (isNamespaced: boolean) =>
    accesses.filter(({ namespace }) => (namespace !== undefined) === isNamespaced)
      .map(({ verb, group, plural }) => `${verb} ${group}/${plural}`).toSorted();
  assertEquals([grantedBy(clusterRole), grantedBy(role)], [asked(false), asked(true)]);
  assertEquals(clusterRole?.metadata.name, name, "doctor prints this name");
  assertEquals(role?.metadata.namespace, ROUTING_SETTINGS.leaseNamespace);
  const [account] = await readManifest("kubernetes/rbac.yaml");
  for (
    const [bound, { roleRef, subjects }] of [
      [clusterRole, clusterBinding as unknown as Binding],
      [role, binding as unknown as Binding],
    ] as const
  ) {
    assertEquals([roleRef.kind, roleRef.name], [bound?.kind, bound?.metadata.name]);
    assertEquals(subjects.map(({ name }) => name), [account?.metadata.name]);
  }
});

Deno.test("the chart has the definitions of deploy/kubernetes, with the fields that are read", async () => {
  const text = await readDeployFile("kubernetes/crds.yaml");
  assertEquals(await readDeployFile("chart/kube-relay/crds/crds.yaml"), text);
  for (const [index, definition] of parseManifest(text, "crds.yaml").entries()) {
    const { spec: { group, names, versions: [version] } } = definition as unknown as Definition;
    const known = ROUTING_OBJECT_KINDS[index]!;
    assertEquals([group, names.kind, names.plural], [known.group, known.kind, known.plural]);
    const { spec, status } = version.schema.openAPIV3Schema.properties;
    for (const [name, defined] of Object.entries({ spec, status })) {
      const { node } = schemaNode(known.schema);
      const field = node.type === "fields" ? schemaNode(node.entries[name]!).node : node;
      const entries = field.type === "fields" ? Object.keys(field.entries) : [];
      assertEquals(Object.keys(defined.properties).sort(), entries.sort(), name);
    }
  }
});

interface Definition {
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string; readonly plural: string };
    readonly versions: readonly [{
      readonly schema: {
        readonly openAPIV3Schema: {
          readonly properties: Readonly<Record<"spec" | "status", { properties: object }>>;
        };
      };
    }];
  };
}

Deno.test("the ClusterRoleBinding joins the ServiceAccount with the ClusterRole", async () => {
  const [account, role, binding] = await readManifest("kubernetes/rbac.yaml");
  const { roleRef, subjects } = binding as unknown as Binding;
  assertEquals(roleRef.name, role?.metadata.name);
  assertEquals(
    subjects.map(({ name, namespace }) => [name, namespace]),
    [[account?.metadata.name, account?.metadata.namespace]],
  );
});

Deno.test("the identity of every node gets the ClusterRole by nodes-rbac.yaml, and nothing else", async () => {
  const objects = await readManifest("kubernetes/nodes-rbac.yaml");
  const [, role] = await readManifest("kubernetes/rbac.yaml");
  assertEquals(objects.map(({ kind }) => kind), ["ClusterRoleBinding"]);
  const { roleRef, subjects } = objects[0] as unknown as Binding;
  assertEquals([roleRef.kind, roleRef.name], [role?.kind, role?.metadata.name]);
  assertEquals<readonly object[]>(subjects, [
    { apiGroup: "rbac.authorization.k8s.io", kind: "Group", name: "system:nodes" },
  ]);
});
