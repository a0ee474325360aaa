/**
 * The data planes of addresses and routes that this build has.
 *
 * @module
 */
import type { IpFamily } from "../lib/net/ip_address.ts";
import { BirdDataPlane } from "./announce/bird/data_plane.ts";
import { PodNetworkDataPlane, type PodNetworkOptions } from "./announce/pod_network/data_plane.ts";
import { Layer2DataPlane } from "./announce/layer2/data_plane.ts";
import type { DataPlaneEdges } from "../lib/engine/data_plane.ts";

/** Creates the data planes. */
export const ROUTING_BACKENDS = {
  layer2(
    edges: DataPlaneEdges,
    options: { readonly family: IpFamily; readonly announceIntervalMs: number },
  ): Layer2DataPlane {
    return new Layer2DataPlane(edges, options);
  },
  bgp(
    edges: DataPlaneEdges,
    { configFile: file, controlSocket: socket }: {
      readonly configFile: string;
      readonly controlSocket: string;
    },
  ): BirdDataPlane {
    const secretsFile = file.replace(/(\.conf)?$/, "-secrets.conf");
    return new BirdDataPlane(edges, { file, secretsFile, socket });
  },
  podNetwork(edges: DataPlaneEdges, options: PodNetworkOptions): PodNetworkDataPlane {
    return new PodNetworkDataPlane(edges, options);
  },
};
