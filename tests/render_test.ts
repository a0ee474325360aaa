/**
 * `kube-relay render` as people run it: the real program with its own permissions for what reaches a
 * pipe, and the real edges in this process, but for programs, which it must not start.
 */
import { assert, assertEquals, assertMatch, assertStringIncludes } from "@std/assert";
import { permissionFlags } from "../lib/os/permissions.ts";
import { THIS_NODE } from "./support/builders/address_plan.ts";
import { testEndpointSlice, testNode, testService } from "./support/builders/builders.ts";
import { FakeApiServer } from "./support/fakes/fake_api_server.ts";
import { writeKubeconfig } from "./support/builders/kubeconfig_file.ts";
import { manifestText, rawObjects } from "./support/builders/raw_objects.ts";
import { type CommandLineResult, render } from "./support/drivers/command_line.ts";

const MAIN = new URL("../main.ts", import.meta.url).pathname;

/** Two Services of which one has IPv6 too; the endpoints of `web` are on this node. */
const OBJECTS = [
  ...rawObjects("Node", testNode()),
  ...rawObjects(
    "Service",
    testService("shop/web", { clusterIP: "10.96.0.1", ports: [{ name: "http", port: 80 }] }),
    testService("shop/cache", {
      clusterIP: "10.96.0.2",
      clusterIPs: ["10.96.0.2", "fd00:96::2"],
      ipFamilies: ["IPv4", "IPv6"],
      ports: [{ name: "redis", port: 6379 }],
    }),
  ),
  ...rawObjects(
    "EndpointSlice",
    testEndpointSlice("shop/web", {
      endpoints: [{ addresses: ["10.1.0.1"], nodeName: THIS_NODE, conditions: {} }],
      ports: [{ name: "http", protocol: "TCP", port: 8080 }],
    }),
  ),
];

/** A folder with these manifests. */
async function withManifests(
  files: Readonly<Record<string, string>>,
  run: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = await Deno.makeTempDir({ prefix: "kube-relay-render-" });
  try {
    for (const [name, text] of Object.entries(files)) {
      await Deno.writeTextFile(`${folder}/${name}`, text);
    }
    await run(folder);
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
}

function withObjects(run: (folder: string) => Promise<void>): Promise<void> {
  return withManifests({ "all.yaml": manifestText(OBJECTS) }, run);
}

Deno.test("render prints the rules of either IP family, with headings of at most 80 columns", async () => {
  await withObjects(async (folder) => {
    const both = await render(["--mode=iptables", `--manifests=${folder}`]);
    assertEquals([both.code, both.err], [0, ""]);
    const parts = await Promise.all(
      ["ipv4", "ipv6"].map((family) =>
        render(["--mode=iptables", `--manifests=${folder}`, `--family=${family}`])
      ),
    );
    assertEquals(parts.map(({ out }) => out).join(""), both.out);
    const [v4 = "", v6 = ""] = parts.map(({ out }) => out);
    assertStringIncludes(v4, "mode iptables, IPv4: 2 ports of 2 Services, on node");
    assertStringIncludes(v6, "mode iptables, IPv6: 1 port of 1 Service, on node");
    assertStringIncludes(v4, "-j DNAT --to-destination 10.1.0.1:8080\n");
    assert(v6.includes(" -d fd00:96::2 ") && !v6.includes("10.96.0."));
    for (const line of both.out.split("\n")) assert(line[0] !== "#" || line.length <= 80, line);
    assert(!both.out.includes("There is no Node"));
  });
});

Deno.test("render --service prints the rules of one Service, and none of another", async () => {
  await withObjects(async (folder) => {
    const args = ["--mode=iptables", `--manifests=${folder}`, "--service=shop/web"];
    const { code, out, err } = await render(args);
    assertEquals([code, err], [0, ""]);
    assertStringIncludes(out, "IPv4: 1 port of Service shop/web, on node");
    assertStringIncludes(out, 'comment "shop/web:http cluster IP"');
    assert(!out.includes("shop/cache"));
  });
});

Deno.test("render --mode userspace prints the table of addresses", async () => {
  await withObjects(async (folder) => {
    const { code, out } = await render([
      ...["--mode=userspace", `--manifests=${folder}`, "--family=ipv4", "--service=shop/web"],
    ]);
    assertEquals([code, out.replaceAll(/^#.*\n/gm, "")], [
      0,
      "10.96.0.1:80/TCP ClusterIP shop/web:http/TCP -> 10.1.0.1:8080\n",
    ]);
  });
});

Deno.test("render reads the objects of the API server, and prints the same", async () => {
  await using server = await FakeApiServer.start();
  for (const object of OBJECTS) server.store.create(object);
  await withObjects(async (folder) => {
    const { url, ca } = server;
    const user = { token: server.rotateToken() };
    await writeKubeconfig(`${folder}/kubeconfig`, { server: url, ca, user });
    const live = await render(["--mode=iptables", `--kubeconfig=${folder}/kubeconfig`]);
    const { out } = await render(["--mode=iptables", `--manifests=${folder}`]);
    assertEquals({ code: live.code, out: live.out }, { code: 0, out });
  });
});

Deno.test("render does not expect manifests to have the Node of this machine", async () => {
  await withObjects(async (folder) => {
    const args = ["--mode=iptables", `--manifests=${folder}`, "--hostname-override=other"];
    assertEquals((await render(args)).out.includes("There is no Node"), false);
  });
});

Deno.test("render leaves out broken objects, names them and exits with 1", async () => {
  const files = {
    "a.yaml": manifestText(OBJECTS),
    "b.yaml": "kind: [Service\n",
    "c.yaml": manifestText(rawObjects(
      "Service",
      testService("shop/odd", { clusterIP: "10.96.0.3", externalIPs: ["none"] }),
    )),
  };
  await withManifests(files, async (folder) => {
    const { code, out, err } = await render(["--mode=iptables", `--manifests=${folder}`]);
    assertEquals(code, 1);
    assertStringIncludes(err, `kube-relay: ${folder}/b.yaml:`);
    assertMatch(err, /^kube-relay: .*spec\.externalIPs\[0\].*none/m);
    assert(out.includes("shop/web:http cluster IP") && !out.includes("10.96.0.3"));
  });
});

const REFUSALS: readonly (readonly [args: readonly string[], code: number, says: string])[] = [
  [["--mode=iptable"], 2, "there is no such mode, only iptables, ipvs, nftables, userspace, auto"],
  [["--mode=auto"], 2, "Cannot render for mode 'auto': which one that is depends on the machine"],
  [["--family=ipv5"], 2, "Cannot use 'ipv5' for --family: expected one of ipv4, ipv6"],
  [
    ["--service=web"],
    2,
    "Cannot use 'web' for --service: expected NAMESPACE/NAME; did you mean 'shop/web'?",
  ],
  [
    ["--service=shop/wbe"],
    1,
    "Cannot find Service 'shop/wbe': none of 2 has this name; did you mean 'shop/web'?",
  ],
  [
    ["--service=shop/web", "--family=ipv6"],
    1,
    "Cannot show Service 'shop/web': it has no port with an address of IPv6 to serve",
  ],
  [
    ["--manifests=/does/not/exist"],
    1,
    "Cannot read manifests of '/does/not/exist': there is no such file or folder",
  ],
];

Deno.test("render prints no rules for an unknown Service, and names the known ones", async (t) => {
  await withObjects(async (folder) => {
    for (const [args, code, says] of REFUSALS) {
      await t.step(args.join(" "), async () => {
        const all = ["--mode=iptables", `--manifests=${folder}`, ...args];
        const { err, ...rest } = await render(all);
        assertEquals(rest, { code, out: "" });
        assertStringIncludes(err, says);
      });
    }
  });
});

Deno.test("render in a pipe: rules alone, and a quiet end when the reader has seen enough", async () => {
  await withManifests({ "b.yaml": "kind: [Service\n" }, async (folder) => {
    const main = [Deno.execPath(), "run", ...permissionFlags(), "--quiet", "--no-check", MAIN];
    const line = [...main, "render", "--mode=iptables", "--manifests=examples/manifests"];
    const shell = async (script: string): Promise<CommandLineResult> => {
      const { code, stdout, stderr } = await new Deno.Command("bash", {
        args: ["-c", `set -o pipefail; ${script}`, "bash", ...line],
        cwd: new URL("..", import.meta.url),
      }).output();
      const text = new TextDecoder();
      return { code, out: text.decode(stdout), err: text.decode(stderr) };
    };
    const cut = await shell('"$@" | head -n 1');
    assertEquals([cut.code, cut.err, cut.out.split("\n").length], [0, "", 2]);
    const noisy = await shell(`"$@" --v=4 --manifests=${folder} --iptables-sync-period=40s`);
    assertEquals(noisy.code, 1);
    for (const each of noisy.out.trimEnd().split("\n")) assertMatch(each, /^([#*:]|-[AI] |COMMIT)/);
    assertStringIncludes(noisy.err, "/b.yaml:");
  });
});
