import { assertEquals } from "@std/assert";
import { FakeCommandRunner } from "../../../tests/support/fakes/fake_command_runner.ts";
import type { PodNetworkSettings } from "../../routing/routing_settings.ts";
import { podNetworkFindings } from "./examine_routing.ts";

const COMPLETE = {
  "/opt/cni/bin": ["bridge", "host-local", "portmap"],
  "/etc/cni/net.d": ["10-kube-relay.conflist", "10-kube-relay.conflist.tmp", "20-x.conf"],
};

async function examine(
  settings: Partial<PodNetworkSettings>,
  { folders = COMPLETE, forwarding = 1, linkError = "" }: {
    readonly folders?: Readonly<Record<string, readonly string[]>>;
    readonly forwarding?: number;
    readonly linkError?: string;
  } = {},
) {
  const commands = new FakeCommandRunner()
    .on("sysctl", { stdout: `net.ipv4.ip_forward = ${forwarding}\n` })
    .on("ip link add", linkError === "" ? {} : { code: 2, stderr: linkError })
    .on("ip link del", {});
  const podNetwork: PodNetworkSettings = {
    ...{ routes: true, overlay: "off", portMappings: true, masquerade: true },
    ...settings,
  };
  const files = { list: (folder: string) => Promise.resolve(folders[folder]) };
  const { signal } = new AbortController();
  const found = await podNetworkFindings(commands, files, podNetwork, ["IPv4"], signal);
  return found.map(({ id, evidence }) => `${id}: ${evidence.join("; ")}`);
}

Deno.test("podNetworkFindings() finds nothing on a machine that has everything", async () => {
  const cniConfig = "/etc/cni/net.d/10-kube-relay.conflist";
  assertEquals(await examine({ overlay: "always", cniConfig }), []);
  assertEquals(await examine({}, { folders: {} }), [], "no CNI configuration is asked for");
});

Deno.test("podNetworkFindings() names what tunnels, packets and pods would miss", async () => {
  assertEquals(
    await examine({ overlay: "always" }, { linkError: "Error: Unknown device type.\n" }),
    ["pod-tunnels: ip link add type ipip: Error: Unknown device type."],
  );
  assertEquals(
    await examine({ overlay: "always" }, {
      linkError: "RTNETLINK answers: Operation not permitted",
    }),
    [],
    "missing rights are another finding",
  );
  assertEquals(await examine({}, { forwarding: 0 }), ["pod-forwarding: net.ipv4.ip_forward is 0"]);
  const folders = { "/opt/cni/bin": ["portmap"], "/etc/cni/net.d": ["10-flannel.conflist"] };
  assertEquals(await examine({ cniConfig: "/etc/cni/net.d/10-kube-relay.conflist" }, { folders }), [
    "cni-plugins: /opt/cni/bin/bridge does not exist; /opt/cni/bin/host-local does not exist",
    "cni-other: /etc/cni/net.d/10-flannel.conflist",
  ]);
});
