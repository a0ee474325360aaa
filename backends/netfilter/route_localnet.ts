/**
 * The kernel setting for node ports on loopback.
 *
 * @module
 */
import type { HostSettingRequest } from "../../lib/proxy/host_setting.ts";

/** Without it, the kernel drops packets from 127.0.0.0/8 to other machines. */
export const ROUTE_LOCALNET: HostSettingRequest = {
  name: "net.ipv4.conf.all.route_localnet",
  value: "1",
  purpose: "serve node ports on 127.0.0.1",
};
