import { assertEquals, assertRejects } from "@std/assert";
import { withFolder } from "../../../tests/support/with_folder.ts";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { cniText, writeCniFile } from "./cni_file.ts";

const OPTIONS = {
  podCidrs: ["10.244.1.0/24", "fd00:244:1::/64"].map(parseCidr),
  mtu: 1480,
  portMappings: true,
};

async function namesIn(folder: string): Promise<readonly string[]> {
  return (await Array.fromAsync(Deno.readDir(folder))).map(({ name }) => name);
}

Deno.test("cniText() has the bridge with all ranges, and host ports if asked for", () => {
  const { plugins, ...list } = JSON.parse(cniText(OPTIONS));
  assertEquals(list.name, "kube-relay");
  assertEquals(plugins[0], {
    type: "bridge",
    bridge: "kube-relay-pods",
    isDefaultGateway: true,
    ipMasq: false,
    mtu: 1480,
    ipam: {
      type: "host-local",
      ranges: [[{ subnet: "10.244.1.0/24" }], [{ subnet: "fd00:244:1::/64" }]],
    },
  });
  assertEquals(plugins[1], { type: "portmap", capabilities: { portMappings: true } });
  assertEquals(JSON.parse(cniText({ ...OPTIONS, portMappings: false })).plugins.length, 1);
});

Deno.test("writeCniFile() replaces the file at once, and makes the folder", () =>
  withFolder(async (folder) => {
    const path = `${folder}/net.d/10-kube-relay.conflist`;
    for (const text of [cniText(OPTIONS), cniText({ ...OPTIONS, mtu: 1500 })]) {
      await writeCniFile(path, text);
      assertEquals(await Deno.readTextFile(path), text);
      assertEquals(await namesIn(`${folder}/net.d`), ["10-kube-relay.conflist"]);
    }
  }));

Deno.test("writeCniFile() refuses a file of other software", () =>
  withFolder(async (folder) => {
    const path = `${folder}/10-flannel.conflist`;
    for (const foreign of ['{"name":"cbr0"}', "", "[]", "null", '{"kubeRelay":true}']) {
      await Deno.writeTextFile(path, foreign);
      await assertRejects(() => writeCniFile(path, cniText(OPTIONS)), Error, "did not write it");
      assertEquals(await Deno.readTextFile(path), foreign);
    }
  }));
