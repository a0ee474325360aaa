/**
 * Tests `explain` and `diff` for NetworkPolicies, as command lines: with manifests, a dump, and a
 * running process. The pages show the same texts.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import type { ExplainReport } from "../lib/tools/explain/explain_report.ts";
import { POLICY_KINDS } from "../lib/app/policy/policy_settings.ts";
import { SERVICE_KINDS } from "../lib/app/service/service_subscriptions.ts";
import type { KubeObject } from "../lib/api/kind.ts";
import type { ConnectionTable } from "../lib/policy/connection_table.ts";
import { type CommandLineResult, runInProcess } from "./support/drivers/command_line.ts";
import { testDump } from "./support/builders/test_dump.ts";
import { readPage } from "./support/docs/command_pages.ts";
import { parseManifest } from "./support/docs/deploy_files.ts";

const SHOP = ["--manifests=examples/network-policy", "--hostname-override=node-a"];
const MANIFESTS = [...SHOP, "--mode=nftables", "--cluster-cidr=10.244.0.0/16"];
const NEW_POLICY = "--manifests=examples/network-policy-change";

function run(...argv: readonly string[]): Promise<CommandLineResult> {
  return runInProcess(argv);
}

/** The objects of the example, by the name of their resource. */
async function shopObjects(): Promise<Readonly<Record<string, readonly KubeObject[]>>> {
  const text = await Deno.readTextFile("examples/network-policy/shop.yaml");
  const objects = parseManifest(text, "shop.yaml");
  return Object.fromEntries(
    [...SERVICE_KINDS, ...POLICY_KINDS].map(({ kind, plural }) => [
      plural,
      objects.filter((object) => object.kind === kind) as unknown as readonly KubeObject[],
    ]),
  );
}

async function withDump(use: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile({ suffix: ".json" });
  try {
    const dump = { ...JSON.parse(testDump()), mode: "nftables", objects: await shopObjects() };
    await Deno.writeTextFile(path, JSON.stringify(dump));
    await use(path);
  } finally {
    await Deno.remove(path);
  }
}

/** Checks that the page shows the output. The text on the page begins with the packet. */
async function assertShown(page: string, out: string): Promise<void> {
  assertStringIncludes(await readPage(page), `\`\`\`\n${out}`);
}

Deno.test("explain says first that a policy denies the packet, and at which end", async () => {
  const { out, code } = await run("explain", "shop/web-0", "shop/db", ...MANIFESTS);
  assertEquals(code, 0);
  const [, packet = ""] = out.split("\n\n");
  const shown = packet.slice(0, packet.indexOf("  9   Carried by"));
  await assertShown("docs/explain.md", shown.trimEnd());
});

Deno.test("explain names the rule that lets a packet through to a pod", async () => {
  const { out } = await run("explain", "shop/web-0", "shop/api-0:8080", ...MANIFESTS);
  const [, packet = ""] = out.split("\n\n");
  await assertShown("docs/explain.md", packet);
});

Deno.test("explain judges after the Service and before the source address changes", async () => {
  const answer = async (from: string, to: string) => {
    const { out, err } = await run("explain", from, to, "--json", ...MANIFESTS);
    if (out === "") throw new Error(err);
    const { packets }: ExplainReport = JSON.parse(out);
    return packets.map(({ policies }) =>
      policies?.receivers.map(({ to, egress, ingress, isAllowed }) => [
        to,
        egress.kind,
        ingress.kind,
        isAllowed,
      ])
    )[0];
  };
  const DB = "10.244.1.12:5432";
  assertEquals(await answer("shop/api-0", "shop/db"), [[DB, "not-isolated", "allowed", true]]);
  assertEquals(await answer("shop/db-0", "shop/api-0:8080"), [
    ["10.244.0.11:8080", "denied", "denied", false],
  ]);
  assertEquals(await answer("203.0.113.9", "shop/web-0:8080"), [
    ["10.244.0.10:8080", "unknown", "allowed", true],
  ]);
  assertEquals(await answer("203.0.113.7", "shop/web-0:8080"), [
    ["10.244.0.10:8080", "unknown", "denied", false],
  ]);
});

Deno.test("explain refuses a missing pod, and a pod without a port", async () => {
  const unknown = await run("explain", "shop/web-9", "shop/db", ...MANIFESTS);
  assertEquals([unknown.code, unknown.out], [1, ""]);
  assertStringIncludes(unknown.err, "Cannot find pod 'shop/web-9'");
  const portless = await run("explain", "shop/web-0", "shop/db-0", ...MANIFESTS);
  assertEquals([portless.code, portless.out], [2, ""]);
  assertStringIncludes(portless.err, "as in NAMESPACE/POD:80");
});

Deno.test("explain --policies prints the truth table of a namespace", () =>
  withDump(async (dump) => {
    const { out, code } = await run("explain", "--policies=shop", ...MANIFESTS);
    assertEquals(code, 0);
    await assertShown("docs/explain.md", out);
    assertEquals((await run("explain", "--policies=shop", `--from=${dump}`)).out, out);
    const json = await run("explain", "--policies=shop", "--json", `--from=${dump}`);
    const { tables: [table, ...others] }: { readonly tables: readonly ConnectionTable[] } = JSON
      .parse(json.out);
    assertEquals([table?.family, others.length, table?.groups.length], ["IPv4", 0, 6]);
    const missing = await run("explain", "--policies=nothing", ...MANIFESTS);
    assertEquals(missing.code, 1);
    assertStringIncludes(missing.err, "no pod of namespace 'nothing' is known");
    assertEquals((await run("explain", "--policies=shop", "a", "b")).code, 2);
  }));

Deno.test("diff --manifests prints which pods a new policy cuts off from each other", () =>
  withDump(async (dump) => {
    const { out, code } = await run("diff", `--from=${dump}`, NEW_POLICY);
    assertEquals(code, 3);
    const at = out.indexOf("NetworkPolicies, IPv4");
    assert(!out.slice(0, at).includes("removed"), out);
    await assertShown("docs/diff.md", out.slice(at));
    const json = await run("diff", `--from=${dump}`, NEW_POLICY, "--json");
    const { policies: [comparison] } = JSON.parse(json.out);
    assertEquals([comparison.cutPairs, comparison.openedPairs], [6, 1]);
    const same = await run("diff", `--from=${dump}`, "--manifests=examples/network-policy");
    assertStringIncludes(same.out, "NetworkPolicies, IPv4\n  nothing would change\n");
  }));

Deno.test("render prints policies after the Services of a family, if they are enforced", async () => {
  const { out } = await run("render", ...MANIFESTS, "--family=ipv4", "--network-policy");
  const heading = "# NetworkPolicies by nftables, IPv4: 3 pods of this node.\n";
  assertStringIncludes(out, `${heading}add table ip kube-relay-policy\n`);
  const other = ["--network-policy", "--network-policy-mode=iptables"];
  assertStringIncludes(
    (await run("render", ...MANIFESTS, "--family=ipv4", ...other)).out,
    "# NetworkPolicies by iptables, IPv4: 3 pods of this node.\n",
  );
  const without = await run("render", ...MANIFESTS, "--family=ipv4");
  assertEquals(without.out.includes("NetworkPolicies"), false);
});
