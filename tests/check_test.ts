/** `kube-relay check` on files as people and CI systems give them to it. */
import { assertEquals, assertStringIncludes } from "@std/assert";
import { permissionFlags } from "../lib/os/permissions.ts";
import { type CommandLineResult, runInProcess } from "./support/drivers/command_line.ts";
import { programFile } from "./support/drivers/program_file.ts";
import { LoopbackRelay } from "./support/stages/loopback_relay.ts";
import { withFolder } from "./support/with_folder.ts";

/** A Service with an endpoint for its port; `more` are further lines of its metadata. */
function service(
  name: string,
  { at = "10.96.0.10", more = "", port = "http" }: {
    readonly at?: string;
    readonly more?: string;
    readonly port?: string;
  } = {},
): string {
  return `apiVersion: v1
kind: Service
metadata:
  name: ${name}
${more}spec:
  clusterIP: ${at}
  ports: [{name: http, port: 80, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: ${name}-1, labels: {kubernetes.io/service-name: ${name}}}
addressType: IPv4
ports: [{name: ${port}, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1]}]
`;
}

/** Writes files and checks their folder. Paths in the result are relative to it. */
function check(
  files: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): Promise<CommandLineResult> {
  return withFolder(async (folder) => {
    const written = new Date("2026-01-01");
    for (const [name, text] of Object.entries(files)) {
      await Deno.writeTextFile(`${folder}/${name}`, text);
      await Deno.utime(`${folder}/${name}`, written, written);
    }
    const socket = `--control-socket=${folder}/none.sock`;
    const { code, out, err } = await runInProcess(["check", folder, socket, ...args]);
    return { code, out: out.replaceAll(`${folder}/`, ""), err };
  });
}

const WRONG_ANNOTATIONS = `  annotations:
    kube-relay.io/balance: round-robbin
    kube-relay.io/max-connections: 100
    kube-relay.io/blance: source-hash
    kube-relay.io/load-balancer-ips: here
    kube-relay.io/ipvs-scheduler: fast
`;

Deno.test("check says nothing about good manifests, and exits with 0", async () => {
  const { code, out, err } = await check({ "web.yaml": service("web") });
  assertEquals([code, out, err], [0, "No problems in 1 file\n", ""]);
});

Deno.test("check reports all mistakes of several files and documents at once, by file and line", async () => {
  const { code, out } = await check({
    "a.yaml": service("web", { more: WRONG_ANNOTATIONS }),
    "b.yaml": `${
      service("api", { at: "10.96.0.300" })
    }---\nkind: Deployment\napiVersion: apps/v1\n`,
    "c.yaml": "a: [\n",
    "d.yaml": service("db", { at: "10.96.0.11", more: "  lables: {}\n", port: "htp" }),
  });
  const lines = out.trimEnd().split("\n");
  const places = lines.map((line) => /^([a-d].yaml:\d+)(?::\d+)?: (\w+): /.exec(line)?.slice(1));
  assertEquals(places.slice(0, -1).map((place) => place?.join(" ")), [
    "a.yaml:6 warning",
    "a.yaml:7 error",
    "a.yaml:8 warning",
    "a.yaml:9 warning",
    "a.yaml:10 warning",
    "b.yaml:1 warning",
    "b.yaml:6 error",
    "c.yaml:2 error",
    "d.yaml:1 warning",
    "d.yaml:5 warning",
  ]);
  const says = [
    `Service default/web: metadata.annotations['kube-relay.io/balance'] is "round-robbin": has to be one of round-robin,`,
    "is 100: has to be text; numbers, true and false need quotes",
    "is no annotation of kube-relay; did you mean 'kube-relay.io/balance'?",
    `is "here": has to be a list, separated by commas, of at most 1000 items, of IP addresses`,
    `is "fast": has to be one of rr, lc,`,
    "objects of kinds that are not served are ignored: Deployment x1",
    `Service default/api: spec.clusterIP is "10.96.0.300"`,
    "Cannot read YAML",
    "Service default/db: port 'http': it has no endpoints: slice db-1 has 1 endpoint, but its port is 'htp'; the Service has 'http'",
    "is no field of kind Service; did you mean 'labels'?",
  ];
  for (const [index, text] of says.entries()) assertStringIncludes(lines[index]!, text);
  assertEquals([lines.at(-1), code], ["3 errors and 7 warnings in 4 files", 1]);
});

Deno.test("check exits with 3 if there are only warnings: an item for an endpoint that does not exist is one", async () => {
  const items = "10.0.0.1=2, 10.0.0.1:8080=3, 10.0.0.1:8081=4, 10.0.0.9=5";
  const { code, out } = await check({
    "web.yaml": service("web", {
      more: `  annotations:\n    kube-relay.io/endpoint-weights: ${items}\n` +
        "    kube-relay.io/unix-sockets: 10.0.0.7:80=unix:/run/app.sock\n",
    }),
  });
  assertEquals(out.split("\n"), [
    "web.yaml:6:5: warning: Service default/web: metadata.annotations['kube-relay.io/endpoint-weights'] is 10.0.0.1:8081=4, 10.0.0.9=5: The Service has no such endpoint",
    "web.yaml:7:5: warning: Service default/web: metadata.annotations['kube-relay.io/unix-sockets'] is 10.0.0.7:80=unix:/run/app.sock: The Service has no such endpoint",
    "2 warnings in 1 file",
    "",
  ]);
  assertEquals(code, 3);
});

Deno.test("check reports addresses that two Services ask for, and objects that two files have, with both places", async () => {
  const { code, out } = await check({ "a.yaml": service("web"), "b.yaml": service("api") });
  assertStringIncludes(
    out,
    "a.yaml:1:1: error: Service default/web: port 'http': 10.96.0.10:80/TCP belongs to default/api:http/TCP: ",
  );
  assertEquals(code, 1);
  const twice = await check({ "a.yaml": service("web"), "b.yaml": service("web") });
  assertStringIncludes(
    twice.out,
    "b.yaml:1:1: warning: Service default/web: is not used: a.yaml:1 has it too, and comes first by name",
  );
  assertEquals(twice.code, 3);
});

const POLICY = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec: {podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/8]}}]}]}
`;

Deno.test("check reports a policy that is not enforced, and with --network-policy what is wrong in it", async () => {
  const off = await check({ "web.yaml": POLICY.replace(", except: [11.0.0.0/8]", "") });
  assertEquals(
    off.out.split("\n")[0],
    "web.yaml:1:1: warning: NetworkPolicy default/web: is ignored: NetworkPolicies are enforced with --network-policy only",
  );
  assertEquals(off.code, 3);
  const on = await check({ "web.yaml": POLICY }, ["--network-policy"]);
  assertStringIncludes(on.out, "web.yaml:4:");
  assertStringIncludes(on.out, "except");
  assertEquals(on.code, 1);
});

Deno.test("check --json has the findings as data", async () => {
  const { code, out } = await check({ "a.yaml": service("web", { more: "  nam: x\n" }) }, [
    "--json",
  ]);
  assertEquals(JSON.parse(out), {
    apiVersion: "kube-relay/v1",
    files: 1,
    findings: [{
      file: "a.yaml",
      line: 5,
      column: 3,
      severity: "warning",
      object: "Service default/web",
      path: "metadata.nam",
      value: '"x"',
      message: "is no field of kind Service; did you mean 'name'?",
    }],
  });
  assertEquals(code, 3);
});

Deno.test("check and render know the errors of a file behind a hundred warnings", async () => {
  const warned = Array.from(
    { length: 101 },
    (_, index) => service(`web-${index}`, { at: `10.96.1.${index + 1}`, more: "  lables: {}\n" }),
  ).join("---\n");
  const bad = service("bad", { at: "nonsense" });
  const { code, out } = await check({ "web.yaml": `${warned}---\n${bad}` });
  assertStringIncludes(out, 'error: Service default/bad: spec.clusterIP is "nonsense"');
  assertStringIncludes(out, "web.yaml:1: warning: 2 more warnings\n");
  assertEquals([out.split("\n").at(-2), code], ["1 error and 100 warnings in 1 file", 1]);
  await withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/web.yaml`, `${warned}---\n${bad}`);
    const rendered = await runInProcess(["render", "--mode=nftables", `--manifests=${folder}`]);
    assertEquals(rendered.code, 1, rendered.err);
  });
  const many = Array.from({ length: 101 }, (_, index) => service(`bad-${index}`, { at: "here" }));
  const all = await check({ "web.yaml": [...many, warned].join("---\n") });
  assertStringIncludes(all.out, "web.yaml:1: error: 1 more error\n");
  assertStringIncludes(all.out, "web.yaml:1: warning: 101 more warnings\n");
});

Deno.test("check reports the findings of more than a thousand files", async () => {
  const files = Array.from({ length: 1_010 }, (_, index) => {
    const at = index < 1_001 ? `10.96.${index >> 8}.${index & 255 || 256}` : "10.97.0.1";
    return [`${index}.yaml`, index === 1_009 ? "a: [\n" : service(`web-${index}`, { at })];
  });
  const { code, out } = await check(Object.fromEntries(files), ["--json"]);
  const { files: count, findings } = JSON.parse(out);
  assertEquals([count, code], [1_010, 1]);
  assertEquals(findings.some(({ file }: { file?: string }) => file === "1009.yaml"), true);
});

Deno.test("check reports contradictions between fields beside invalid values, each fault once", async () => {
  const broken = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.11]
  ports: [{port: 80, nodePort: 99999}, {port: 80, nodePort: 30001}]
`;
  const web = await check({ "web.yaml": broken });
  const fields = (out: string) =>
    [...out.matchAll(/error: .*? (spec\S*?)(?: is |:)/g)].map(([, at]) => at);
  assertEquals(fields(web.out).sort(), [
    "spec.clusterIP",
    "spec.ports[0].name",
    "spec.ports[0].nodePort",
    "spec.ports[1].name",
    "spec.ports[1].port",
  ], web.out);
  const bad = broken.replace("NodePort", "ClusterIP").replaceAll(/10.96.0.1./g, "nonsense");
  assertEquals(fields((await check({ "web.yaml": bad })).out).sort(), [
    "spec.clusterIP",
    "spec.clusterIPs[0]",
    "spec.ports[0].name",
    "spec.ports[0].nodePort",
    "spec.ports[1].name",
    "spec.ports[1].nodePort",
    "spec.ports[1].port",
  ]);
});

Deno.test("check reports each fault of a NetworkPolicy once, in the words of its file", async () => {
  const { out, code } = await check({
    "web.yaml": `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {matchExpressions: [{key: app, operator: Exists, values: [a]}]}
  ingress:
  - from: [{ipBlock: {cidr: 10.0.0.0/40, except: [11.0.0.0/8]}}, {}]
    ports: [{port: 80, endPort: 70}]
`,
  }, ["--network-policy"]);
  assertEquals(out.replaceAll(/: has to[^\n]*|^.*NetworkPolicy default.web: /gm, "").split("\n"), [
    "spec.podSelector.matchExpressions[0].values: cannot stand with Exists",
    'spec.ingress[0].from[0].ipBlock.cidr is "10.0.0.0/40"',
    "spec.ingress[0].from[1]",
    "spec.ingress[0].ports[0].endPort is 70",
    "4 errors in 1 file",
    "",
  ]);
  assertEquals(code, 1);
});

Deno.test("check reports the faults of ClusterNetworkPolicies", async () => {
  const policy = (name: string, spec: string) =>
    `apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: ${name}}
spec: ${spec}
---
`;
  const rule = "{action: Accept, to: [{networks: [10.0.0.0/8]}]}";
  const given = "tier: Admin, priority: 0, subject: {namespaces: {}}";
  const { out, code } = await check({
    "admin.yaml": policy("a", `{${given}, egress: [{action: Log, to: []}]}`) +
      policy("b", `{${given}, egress: [${Array(26).fill(rule)}]}`) +
      policy("c", "{priority: 1001, egress: [{to: []}]}") +
      policy(
        "d",
        `{${given}, ingress: [{action: Deny, from: [{namespaces: {matchLabels: {a: "b c"}}}]}]}`,
      ) +
      policy("e", `{${given}, egress: [{action: Accept, to: [{domainNames: [kubernetes.io]}]}]}`),
  }, ["--network-policy"]);
  const lines = out.replaceAll(
    /^.*ClusterNetworkPolicy |: has to be (?:the value|a whole).*$/gm,
    "",
  );
  assertEquals(lines.split("\n"), [
    'a: spec.egress[0].action is "Log": has to be Accept, Deny or Pass',
    "b: spec.egress: has to have at most 25 entries, not 26",
    "c: spec.tier: is missing",
    "c: spec.subject: is missing",
    "c: spec.priority is 1001",
    "c: spec.egress[0].action: is missing",
    "c: spec.egress[0].to: has to have 1 to 25 entries, not 0",
    'd: spec.ingress[0].from[0].namespaces.matchLabels.a is "b c"',
    'e: spec.egress[0].to[0].domainNames is ["kubernetes.io"]: Domain names are not supported and match nothing; use networks',
    "9 errors in 1 file",
    "",
  ]);
  assertEquals(code, 1);
});

Deno.test("check reports links that lead nowhere, names that are not UTF-8, and missing paths beside the rest", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/a.yaml`, service("web", { at: "here" }));
    await Deno.symlink("none", `${folder}/b.yaml`);
    const made = await new Deno.Command("sh", {
      args: ["-c", `: > "$1/$(printf 'c\\377').yaml"`, "sh", folder],
    }).output();
    assertEquals(made.success, true);
    const socket = `--control-socket=${folder}/none.sock`;
    const { out, code } = await runInProcess(["check", folder, `${folder}/gone`, socket]);
    const lines = out.replaceAll(`${folder}/`, "").split("\n");
    assertEquals(lines.map((line) => line.slice(0, 60)), [
      'a.yaml:6:3: error: Service default/web: spec.clusterIP is "h',
      "b.yaml:1:1: error: Cannot read manifest: it is a link to a f",
      "c\uFFFD.yaml:1:1: error: Cannot read manifest: its name is not va",
      "gone:1:1: error: Cannot read manifest: there is no such file",
      "4 errors in 4 files",
      "",
    ]);
    assertEquals(code, 1);
  }));

Deno.test("check says that a manifest is not UTF-8", () =>
  withFolder(async (folder) => {
    const text = service("web");
    const wide = Uint16Array.from(`\uFEFF${text}`, (each) => each.charCodeAt(0));
    await Deno.writeFile(`${folder}/web.yaml`, new Uint8Array(wide.buffer));
    const { out } = await runInProcess(["check", `${folder}/web.yaml`]);
    assertStringIncludes(out, "found text that is not UTF-8; save the file as UTF-8");
  }));

Deno.test("check of a device names the operand for standard input", async () => {
  const { code, err } = await runInProcess(["check", "/dev/null"]);
  assertStringIncludes(err, "it is not a regular file; for standard input, give -");
  assertEquals(code, 1);
});

Deno.test("check takes several files and every mode, and refuses a path that does not exist", () =>
  withFolder(async (folder) => {
    const paths = [`${folder}/a.yaml`, `${folder}/b.txt`];
    await Deno.writeTextFile(paths[0]!, service("web"));
    await Deno.writeTextFile(paths[1]!, service("api", { at: "10.96.0.11" }));
    for (const mode of ["auto", "iptables", "ipvs", "nftables", "userspace"]) {
      const { code, out } = await runInProcess(["check", ...paths, `--mode=${mode}`]);
      assertEquals([code, out], [0, "No problems in 2 files\n"], mode);
    }
    const none = await runInProcess(["check", `${folder}/none`]);
    assertEquals([none.code, none.out], [1, ""]);
    assertStringIncludes(none.err, "none': there is no such file or folder");
    assertEquals((await runInProcess(["check"])).code, 2);
    await Deno.mkdir(`${folder}/empty`);
    const empty = await runInProcess(["check", `${folder}/empty`]);
    assertEquals([empty.code, empty.out.split("\n")[0]], [
      3,
      "warning: there is no object that kube-relay reads",
    ]);
  }));

Deno.test("check - reads standard input", async () => {
  const main = programFile(new URL("../main.ts", import.meta.url));
  const flags = [...permissionFlags(), "--unstable-net", "--quiet", "--no-check"];
  const process = new Deno.Command(Deno.execPath(), {
    args: ["run", ...flags, main, "check", "-"],
    stdin: "piped",
    stdout: "piped",
    stderr: "piped",
  }).spawn();
  const writer = process.stdin.getWriter();
  await writer.write(new TextEncoder().encode(service("web", { at: "here" })));
  await writer.close();
  const { code, stdout, stderr } = await process.output();
  const out = new TextDecoder().decode(stdout);
  assertStringIncludes(out, "-:6:3: error: Service default/web: spec.clusterIP is");
  assertEquals([code, new TextDecoder().decode(stderr)], [1, ""]);
});

Deno.test("check of a folder shows what it would change for the process that runs here; of a file it does not", async () => {
  await using relay = await LoopbackRelay.start({
    manifests: { "web.yaml": service("web", { at: "127.51.0.9" }) },
  });
  await relay.settled();
  const files = { "web.yaml": service("api", { at: "127.51.0.9" }) };
  await withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/web.yaml`, files["web.yaml"]);
    const socket = `--control-socket=${relay.folder}/control.sock`;
    const whole = await runInProcess(["check", folder, socket]);
    assertEquals(whole.code, 0, whole.out);
    assertStringIncludes(whole.out.replaceAll(/\s+/g, " "), "removed default/web:http TCP");
    assertStringIncludes(whole.out, "2 things would change");
    const { changes } = JSON.parse((await runInProcess(["check", folder, socket, "--json"])).out);
    const diff = await runInProcess(["diff", `--manifests=${folder}`, socket, "--json"]);
    const { apiVersion: _, ...same } = JSON.parse(diff.out);
    assertEquals([changes, diff.code], [same, 3]);
    const file = await runInProcess(["check", `${folder}/web.yaml`, socket]);
    assertEquals(file.out, "No problems in 1 file\n");
  });
});

Deno.test("status and the log name weights for endpoints that do not exist", async () => {
  const more = '  annotations: {kube-relay.io/endpoint-weights: "10.0.0.9=3"}\n';
  await using relay = await LoopbackRelay.start({
    manifests: { "web.yaml": service("web", { at: "127.51.0.10", more }) },
  });
  const { families } = await relay.settled();
  const settings = families.flatMap(({ services }) => services).flatMap((each) =>
    each.settings ?? []
  );
  assertEquals(settings, [
    "endpoint-weights 10.0.0.9=3",
    "annotation kube-relay.io/endpoint-weights names endpoints that the Service does not have: 10.0.0.9=3",
  ]);
  const lines = relay.log.split("\n").filter((line) => line.includes("no such endpoint"));
  assertEquals(lines.length, 1, relay.log);
  assertStringIncludes(lines[0]!, "WARN");
});
