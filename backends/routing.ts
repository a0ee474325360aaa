/**
 * The data planes of addresses and routes that this build has.
 *
 * @module
 */
import type { Clock } from "../lib/os/clock.ts";
import type { CommandRunner } from "../lib/os/command_runner.ts";
import type { Logger } from "../lib/log/logger.ts";
import type { IpFamily } from "../lib/net/ip_address.ts";
import { type BgpDataPlane, createBirdDataPlane } from "./bird/data_plane.ts";
import { PodNetworkDataPlane, type PodNetworkOptions } from "./pod_network/data_plane.ts";
import { Layer2DataPlane } from "./layer2/data_plane.ts";

/** The edges of the data planes. */
interface RoutingEdges {
  readonly clock: Clock;
  readonly commands: CommandRunner;
  readonly logger: Logger;
  readonly random: () => number;
}

/** Creates the data planes. */
export const ROUTING_BACKENDS = {
  layer2(
    edges: RoutingEdges,
    options: { readonly family: IpFamily; readonly announceIntervalMs: number },
  ): Layer2DataPlane {
    return new Layer2DataPlane(edges, options);
  },
  bgp(
    edges: RoutingEdges,
    { configFile: file, controlSocket: socket }: {
      readonly configFile: string;
      readonly controlSocket: string;
    },
  ): BgpDataPlane {
    const secretsFile = file.replace(/(\.conf)?$/, "-secrets.conf");
    return createBirdDataPlane(edges, { paths: { file, secretsFile, socket } });
  },
  podNetwork(edges: RoutingEdges, options: PodNetworkOptions): PodNetworkDataPlane {
    return new PodNetworkDataPlane(edges, options);
  },
};
