/** `kube-relay explain` as a command line: of a running process, of manifests, and of a dump. */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { ExplainReport } from "../lib/tools/explain/explain_report.ts";
import { type CommandLineResult, runInProcess } from "./support/drivers/command_line.ts";
import { ADDRESSES, OTHER_NODE, THIS_NODE } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { DumpedRelay } from "./support/stages/dumped_relay.ts";
import { FakeIptablesMachine } from "./support/fakes/fake_iptables_machine.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";

const { IPv4 } = ADDRESSES;

function explain(...argv: readonly string[]): Promise<CommandLineResult> {
  return runInProcess(["explain", ...argv]);
}

/** The verdict, the endpoints that may get the packet, and the queries to the kernel. */
function gist({ out, err }: CommandLineResult): readonly unknown[] {
  if (out === "") throw new Error(err);
  const report: ExplainReport = JSON.parse(out);
  return report.packets.map(({ family, verdict, endpoints, kernel, service }) => ({
    family,
    service: service?.key,
    verdict: verdict.kind,
    to: endpoints.filter(({ eligible }) => eligible).map(({ key }) => key),
    kernel: kernel.kind === "asked" ? kernel.differences.map(({ kind }) => kind) : kernel.kind,
  }));
}

const OBJECTS = [
  ...rawObjects("Node", testNode()),
  ...rawObjects(
    "Service",
    testService("shop/web", {
      type: "NodePort",
      externalTrafficPolicy: "Local",
      ports: [{ name: "http", port: 80, nodePort: 30080 }, { name: "admin", port: 81 }],
    }),
  ),
  ...rawObjects(
    "EndpointSlice",
    testEndpointSlice("shop/web", {
      endpoints: [
        { addresses: [IPv4.localPods[0]], nodeName: THIS_NODE },
        { addresses: [IPv4.remotePods[0]], nodeName: OTHER_NODE },
      ],
      ports: [{ name: "http", port: 8080 }],
    }),
  ),
];

async function withManifests(
  run: (folder: string) => Promise<void>,
  objects = OBJECTS,
): Promise<void> {
  const folder = await Deno.makeTempDir();
  try {
    await Deno.writeTextFile(`${folder}/all.yaml`, manifestText(objects));
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

const HERE = `${IPv4.localPods[0]}:8080`;
const BOTH = [HERE, `${IPv4.remotePods[0]}:8080`];
const HTTP = { family: "IPv4", service: "shop/web:http/TCP", verdict: "forward" };
const ADMIN = { family: "IPv4", service: "shop/web:admin/TCP", verdict: "reject", to: [] };

Deno.test("explain asks a running kube-relay, which asks its kernel", () =>
  withManifests(async (folder) => {
    const machine = new FakeIptablesMachine();
    const commands = ["choom", "conntrack", "nproc"].reduce(
      (all, program) => all.on(program, { code: 1 }),
      machine.commands,
    );
    await using relay = await DumpedRelay.start({
      mode: "iptables",
      commands,
      flags: [`--manifests=${folder}`, "--cluster-cidr=10.0.0.0/8"],
      addresses: [IPv4.node],
    });
    const socket = `--control-socket=${relay.socket}`;
    const ask = async (from: string, to: string) => gist(await explain(from, to, socket, "--json"));
    assertEquals(await ask(IPv4.localPodClient, "shop/web"), [
      { ...HTTP, to: BOTH, kernel: [] },
      { ...ADMIN, kernel: [] },
    ]);
    assertEquals(await ask("outside", "node:30080"), [{ ...HTTP, to: [HERE], kernel: [] }]);
    const { out, code } = await explain("node", "shop/web:http", socket);
    assertEquals(code, 0);
    assertStringIncludes(out, "FORWARDED to one of 2 endpoints of shop/web:http.");
    const wrong = await explain("node", "shop/wbe", socket);
    assertEquals([wrong.code, wrong.out], [1, ""]);
    assertStringIncludes(wrong.err, "did you mean 'shop/web'?");
    const dump = `${folder}/node.json`;
    await Deno.writeTextFile(dump, await relay.dump());
    assertEquals(gist(await explain("outside", "node:30080", "--from", dump, "--json")), [
      { ...HTTP, to: [HERE], kernel: "not asked" },
    ]);
  }));

Deno.test("explain of manifests needs no running kube-relay, in every mode", () =>
  withManifests(async (folder) => {
    for (const mode of ["iptables", "ipvs", "nftables", "userspace"]) {
      const given = [`--manifests=${folder}`, `--mode=${mode}`, "--cluster-cidr=10.0.0.0/8"];
      const ask = async (from: string, to: string) =>
        gist(await explain(from, to, "--json", ...given));
      assertEquals(await ask(IPv4.client, "node:30080"), [
        { ...HTTP, to: [HERE], kernel: "not asked" },
      ], mode);
      assertEquals(await ask("node", "shop/web:81"), [{ ...ADMIN, kernel: "not asked" }], mode);
    }
  }));

Deno.test("explain distinguishes wrong use from missing objects", async () => {
  const missingSocket = "--control-socket=/nonexistent/socket";
  for (
    const [argv, code, says] of [
      [["node"], 2, "'explain' lacks TO"],
      [["here", "shop/web"], 2, "Cannot read FROM 'here'"],
      [["node", "web"], 2, "Cannot read TO 'web'"],
      [["node", "a/b", "c"], 2, "Unexpected argument 'c'"],
      [["node", "a/b", missingSocket], 1, "no program listens there"],
    ] as const
  ) {
    const result = await explain(...argv);
    assertEquals([result.code, result.out], [code, ""], argv.join(" "));
    assertStringIncludes(result.err, says);
  }
});

Deno.test("explain prints nothing of a manifest that a terminal would act on", () =>
  withManifests(async (folder) => {
    const evil = testService("shop/evil\x1b[2J", { clusterIP: "172.30.0.66" });
    await Deno.writeTextFile(`${folder}/evil.yaml`, manifestText(rawObjects("Service", evil)));
    const { out, err } = await explain("node", "172.30.0.66:80", `--manifests=${folder}`);
    // deno-lint-ignore no-control-regex
    assert(!/[\x00-\x09\x0b-\x1f]/.test(out + err), JSON.stringify(out + err));
  }));

Deno.test("explain says why a load balancer address is not served", () => {
  const spec = { type: "LoadBalancer", ports: [{ port: 80, nodePort: 30080 }] } as const;
  const annotations = { "kube-router.io/service.skiplbips": "true" };
  const proxied = { ip: "198.51.100.2", ipMode: "Proxy" } as const;
  const services = [
    testService("skipped", { ...spec, clusterIP: "172.30.0.61" }, {
      ...{ metadata: { annotations }, ingress: [{ ip: "198.51.100.1" }] },
    }),
    testService("proxied", { ...spec, clusterIP: "172.30.0.62", ports: [{ port: 80 }] }, {
      ingress: [proxied],
    }),
  ];
  const reasons = {
    "198.51.100.1": "its annotation kube-router.io/service.skiplbips",
    "198.51.100.2": "ipMode Proxy, which belongs to the load balancer",
  };
  return withManifests(async (folder) => {
    for (const [address, reason] of Object.entries(reasons)) {
      const { out } = await explain(
        "outside",
        `${address}:80`,
        `--manifests=${folder}`,
        "--mode=nftables",
      );
      assertStringIncludes(out.replaceAll(/\s+/g, " "), reason);
    }
  }, [...rawObjects("Node", testNode()), ...rawObjects("Service", ...services)]);
});
