/**
 * Tests the packed chart by helm: its objects are those of deploy/kubernetes, and an API server takes
 * them. Run deploy/release/chart.sh first.
 */
import { assert, assertEquals, assertRejects, assertStringIncludes } from "@std/assert";
import { loadConfiguration } from "../../lib/config/load.ts";
import { parseFlags } from "../../lib/config/parse_flags.ts";
import { VERSION } from "../../lib/config/version.ts";
import { buildApiserver } from "../conformance/build_apiserver.ts";
import { createStrictly } from "../conformance/manifest_tests.ts";
import type { RawObject } from "../conformance/server.ts";
import { parseManifest, readDeployFile, readManifest } from "../support/docs/deploy_files.ts";
import { testNeeding } from "../support/requirement.ts";
import { startApiMachinery } from "../support/stages/api_machinery.ts";
import { CHART_REQUIREMENTS, configOf, helm, podOf, render, sorted, type Values } from "./chart.ts";

const test = testNeeding("the chart", CHART_REQUIREMENTS);

async function manifests(...names: readonly string[]): Promise<RawObject[]> {
  const objects = await Promise.all(names.map((name) => readManifest(`kubernetes/${name}.yaml`)));
  return sorted(objects.flat());
}

function argsOf(objects: readonly RawObject[]): readonly string[] {
  return podOf(objects).containers[0]!.args ?? [];
}

const OWN_CONFIG = {
  cluster: "other",
  apiServer: "https://192.0.2.1:6443",
  mode: "nftables",
  routing: { enabled: true },
  bgp: { enabled: true, passwordSecret: "passwords" },
  config: {
    nodePortAddresses: ["primary"],
    routing: {
      leaseNamespace: "leases",
      announce: "bgp",
      pools: [{ name: "office", addresses: ["192.0.2.0/28"] }],
      bgp: { localAs: 4_200_000_000, peers: [{ address: "198.51.100.1", as: 64513 }] },
    },
  },
};

/** Values and the manifests of deploy/kubernetes whose objects they make. */
const SAME: readonly [Values, readonly string[]][] = [
  [{}, ["rbac", "kubeadm"]],
  [{ mode: "userspace" }, ["rbac", "kubeadm-userspace"]],
  [{ cluster: "k3s" }, ["k3s"]],
  [{ cleanup: true }, ["cleanup"]],
];

for (const [values, names] of SAME) {
  test(`the chart with ${JSON.stringify(values)} makes the objects of ${names.join(" and ")}`, async () =>
    assertEquals(await render(values), await manifests(...names)));
}

test("the chart gives the rights for NetworkPolicies and routing that the manifests give", async () => {
  const withRights = await render({
    networkPolicy: { enabled: true },
    routing: { enabled: true, objects: true },
  });
  const noDaemonSet = ({ kind }: RawObject) => kind !== "DaemonSet";
  assertEquals(
    withRights.filter(noDaemonSet),
    await manifests("rbac", "network-policy-rbac", "routing-rbac"),
  );
  const args = ["--network-policy", "--routing", "--routing-objects"];
  assertEquals(argsOf(withRights).slice(-3), args);
  assertEquals(await render({ rbac: { create: false }, serviceAccount: { create: false } }), [
    ...await manifests("kubeadm"),
  ]);
});

test("on k3s the chart gives the identity of the kubeconfig the rights for routing", async () => {
  const objects = await render({
    cluster: "k3s",
    networkPolicy: { enabled: true },
    routing: { enabled: true },
  });
  const k3sPolicies = "--policy-kubeconfig=/var/lib/rancher/k3s/agent/k3scontroller.kubeconfig";
  assertEquals(argsOf(objects).slice(-3), ["--network-policy", k3sPolicies, "--routing"]);
  const subjects = objects.filter(({ kind }) => kind.endsWith("Binding"))
    .map((object) => (object as unknown as { subjects: unknown }).subjects);
  const user = {
    apiGroup: "rbac.authorization.k8s.io",
    kind: "User",
    name: "system:kube-proxy",
  };
  assertEquals(subjects, [[user], [user]]);
});

/** Reads the arguments, and the configuration file that they name, by the real parsers. */
async function configurationOf(objects: readonly RawObject[]) {
  const args = argsOf(objects).map((arg) => arg.replace("$(NODE_NAME)", "node-1"));
  const { values: flags, positionals, problems } = parseFlags(args);
  assertEquals([problems, positionals], [[], []]);
  const readTextFile = () => Promise.resolve(configOf(objects) ?? "");
  return await loadConfiguration({ uid: 0, env: () => undefined, readTextFile }, { flags });
}

test("kube-relay reads the configuration of the chart as it is meant", async () => {
  const objects = await render(OWN_CONFIG);
  const { proxy, mode } = await configurationOf(objects);
  assertEquals([mode, proxy.hostnameOverride], ["nftables", "node-1"]);
  assertEquals([proxy.detectLocalMode, proxy.nodePortAddresses], ["NodeCIDR", ["primary"]]);
  assertEquals([proxy.routing.enabled, proxy.routing.bgp.enabled], [true, true]);
  assertEquals(proxy.routing.bgp.localAs, 4_200_000_000);
  const role = objects.find(({ kind }) => kind === "Role");
  assertEquals(role?.metadata.namespace, "leases");
  assertEquals(podOf(objects, "kube-relay-bird").containers.length, 1);

  const onK3s = await render({ cluster: "k3s", config: { detectLocalMode: "ClusterCIDR" } });
  const own = await configurationOf(onK3s);
  assertEquals(
    [own.proxy.detectLocalMode, own.proxy.healthzBindAddress],
    ["ClusterCIDR", "127.0.0.1:10256"],
  );
  assertEquals(
    own.proxy.clientConnection.kubeconfig,
    "/var/lib/rancher/k3s/agent/kubeproxy.kubeconfig",
  );
  assertEquals(
    own.proxy.conntrack,
    (await configurationOf(await render({ cluster: "k3s" }))).proxy.conntrack,
  );

  const onKubeadm = await configurationOf(await render({ mode: "nftables" }));
  assertEquals(onKubeadm.mode, "nftables");
});

test("the values of images and pods are obeyed", async () => {
  const digest = `sha256:${"0a".repeat(32)}`;
  const objects = await render({
    image: { repository: "registry.local/kr", digest, pullPolicy: "Always" },
    imagePullSecrets: [{ name: "pull" }],
    extraArgs: ["--v=4"],
    resources: { requests: { cpu: "1" } },
    tolerations: [],
    podLabels: { team: "network" },
    podAnnotations: { note: "a" },
    updateStrategy: { rollingUpdate: { maxUnavailable: 2 } },
  });
  const text = JSON.stringify(objects.find(({ kind }) => kind === "DaemonSet"));
  for (
    const part of [
      `"image":"registry.local/kr@${digest}","imagePullPolicy":"Always"`,
      '"imagePullSecrets":[{"name":"pull"}]',
      '"--takeover","--v=4"]',
      '"resources":{"requests":{"cpu":"1"}}',
      '"labels":{"app.kubernetes.io/name":"kube-relay","k8s-app":"kube-proxy","team":"network"}',
      '"annotations":{"note":"a"}',
      '"updateStrategy":{"rollingUpdate":{"maxUnavailable":2}}',
    ]
  ) assertStringIncludes(text, part);
  assert(!text.includes("tolerations"), text);
});

test("text that looks like a number stays text, and a large number is written out", async () => {
  const objects = await render({
    priorityClassName: "123",
    serviceAccount: { name: "1e3" },
    terminationGracePeriodSeconds: 1_000_000,
    podLabels: { "k8s-app": null, on: "true" },
    routing: { enabled: true },
    bgp: { enabled: true, passwordSecret: "456" },
    config: { healthzBindAddress: "[::]:10256", routing: { leaseNamespace: "789" } },
  });
  const daemonSet = JSON.stringify(
    objects.find(({ kind, metadata }) => kind === "DaemonSet" && metadata.name === "kube-relay"),
  );
  for (
    const part of [
      '"priorityClassName":"123"',
      '"serviceAccountName":"1e3"',
      '"terminationGracePeriodSeconds":1000000',
      '"secretName":"456"',
      '"labels":{"app.kubernetes.io/name":"kube-relay","on":"true"}',
    ]
  ) assertStringIncludes(daemonSet, part);
  const role = objects.find(({ kind }) => kind === "Role");
  assertEquals(role?.metadata.namespace, "789");
  assertStringIncludes(JSON.stringify(objects), '"kind":"ServiceAccount","name":"1e3"');
});

/** Values that are refused, and what helm says about them. */
const REFUSED: readonly [Values, string][] = [
  [{ cluster: "eks" }, "cluster"],
  [{ cluster: "other" }, "cluster: other needs apiServer"],
  [{ apiServer: "https://192.0.2.1:6443" }, "apiServer is used only with cluster: other"],
  [{ bgp: { enabled: true } }, "bgp.enabled needs routing.enabled"],
  [{ networkpolicy: { enabled: true } }, "networkpolicy"],
  [{ image: { tags: "a" } }, "tags"],
  [{ extraArgs: "--v=4" }, "extraArgs"],
  [{ cluster: "other", apiServer: "https://a\n            - --v=9" }, "apiServer"],
  [{ image: { repository: "a: b" } }, "repository"],
  [{ podLabels: { team: true } }, "podLabels"],
  [{ podAnnotations: { note: 1 } }, "podAnnotations"],
  [{ routing: { enabled: true }, config: { routing: true } }, "/config/routing"],
  [
    { config: { healthzBindAddress: "0.0.0.0:10300" } },
    "config.healthzBindAddress is 0.0.0.0:10300: leave its port at 10256",
  ],
];

for (const [values, words] of REFUSED) {
  test(`the chart refuses ${JSON.stringify(values)}`, async () => {
    const error = await assertRejects(() => helm("template", values), Error);
    assertStringIncludes(error.message, words);
  });
}

test("every value has its place in the schema, and the chart has the version of the program", async () => {
  const schema = JSON.parse(await readDeployFile("chart/kube-relay/values.schema.json"));
  const text = await readDeployFile("chart/kube-relay/values.yaml");
  const [values] = parseManifest(text, "values.yaml") as unknown as Values[];
  const { global: _, ...described } = schema.properties;
  assertEquals(Object.keys(values!).toSorted(), Object.keys(described).toSorted());
  for (const [name, value] of Object.entries(values!)) {
    if (described[name].additionalProperties !== false) continue;
    assertEquals(
      Object.keys(value as Values).toSorted(),
      Object.keys(described[name].properties).toSorted(),
      name,
    );
  }
  const chart = await readDeployFile("chart/kube-relay/Chart.yaml");
  assertStringIncludes(chart, `\nversion: ${VERSION}\nappVersion: ${VERSION}\n`);
});

test("helm lint and an API server with strict field checking take what the chart makes", async (t) => {
  const apiserver = await buildApiserver();
  assert(apiserver !== undefined, "Go is missing");
  await using server = await startApiMachinery({ program: apiserver });
  const policies = { networkPolicy: { enabled: true }, routing: { enabled: true } };
  const pods = { imagePullSecrets: [{ name: "pull" }], updateStrategy: { type: "OnDelete" } };
  const cases = [...SAME.map(([values]) => values), OWN_CONFIG, { ...policies, ...pods }];
  for (const values of cases) {
    await t.step(JSON.stringify(values), async () => {
      await helm("lint", values);
      for (const object of await render(values)) {
        // The API machinery of the tests has none.
        if (object.kind === "ConfigMap") continue;
        assertEquals(await createStrictly(server, object), "created");
      }
    });
  }
});
