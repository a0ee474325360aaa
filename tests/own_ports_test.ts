/**
 * Services that ask for the ports of kube-relay at the node's own address, in every mode that writes
 * rules: as `render` prints them, and as `explain` answers.
 */
import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { render, runInProcess } from "./support/drivers/command_line.ts";
import { ADDRESSES } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { withFolder } from "./support/with_folder.ts";

const { IPv4 } = ADDRESSES;

const OBJECTS = [
  ...rawObjects("Node", testNode()),
  ...rawObjects(
    "Service",
    testService("ns1/tenant", {
      externalIPs: [IPv4.node],
      ports: [{ name: "own", port: 10256 }, { name: "other", port: 10257 }],
    }),
  ),
  ...rawObjects(
    "EndpointSlice",
    testEndpointSlice("ns1/tenant", {
      endpoints: [IPv4.localPods[0]],
      ports: [{ name: "own", port: 8080 }, { name: "other", port: 8080 }],
    }),
  ),
];

function withManifests<T>(run: (folder: string) => Promise<T>): Promise<T> {
  return withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/all.yaml`, manifestText(OBJECTS));
    return await run(folder);
  });
}

/** Returns the output of `explain` for a packet of a load balancer. */
async function explain(folder: string, to: string): Promise<string> {
  const { code, out, err } = await runInProcess([
    ...["explain", IPv4.client, to, `--manifests=${folder}`],
  ]);
  assertEquals(code, 0, err);
  return out;
}

for (const mode of ["iptables", "nftables", "ipvs"] as const) {
  Deno.test(`mode ${mode}: a Service does not get the health port of the node, and its other port`, async () => {
    await withManifests(async (folder) => {
      const { out, err } = await render([`--mode=${mode}`, `--manifests=${folder}`]);
      const lines = out.split("\n").filter((line) => line.includes(IPv4.node));
      assert(lines.some((line) => line.includes("10257")), err + out);
      assertEquals(lines.filter((line) => /\b10256\b/.test(line)), []);
    });
  });
}

Deno.test("explain says that the health port of the node is kube-relay's, and which Service asks for it", async () => {
  await withManifests(async (folder) => {
    const text = await explain(folder, `${IPv4.node}:10256`);
    assertStringIncludes(
      text,
      "NOT HANDLED: port 10256 of this node is kube-relay's health server",
    );
    assertStringIncludes(text, "ns1/tenant:own asks for this address and port");
    assertStringIncludes(await explain(folder, `${IPv4.node}:10257`), "FORWARDED");
  });
});
