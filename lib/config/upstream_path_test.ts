import { assertEquals } from "@std/assert";
import { upstreamPath } from "./upstream_path.ts";

Deno.test("upstreamPath() names blocks by their Go types and fields as Go spells them", () => {
  const cases = {
    "iptables.masqueradeBit": "KubeProxyIPTablesConfiguration.MasqueradeBit",
    "ipvs.excludeCIDRs.1": "KubeProxyIPVSConfiguration.ExcludeCIDRs[1]",
    "conntrack.tcpCloseWaitTimeout": "KubeProxyConntrackConfiguration.TCPCloseWaitTimeout",
    oomScoreAdj: "OOMScoreAdj",
    "clientConnection.burst": "ClientConnection.Burst",
    "featureGates.AllAlpha": "featureGates.AllAlpha",
  };
  for (const [path, expected] of Object.entries(cases)) {
    assertEquals(upstreamPath(path), `KubeProxyConfiguration.${expected}`);
  }
});
