/** In bytes: IFNAMSIZ of the kernel without the zero at the end. */
export const LONGEST_INTERFACE_NAME = 15;

/** Length of a name as the kernel counts it, in bytes of UTF-8. */
export function interfaceNameLength(text: string): number {
  return new TextEncoder().encode(text).length;
}

/**
 * Whether an interface can have this name, by the rules of the kernel's `dev_valid_name()`: 1 to 15
 * bytes without slash, colon or blank, neither `.` nor `..`.
 */
export function isInterfaceName(text: string): boolean {
  return interfaceNameLength(text) <= LONGEST_INTERFACE_NAME && !/^\.{0,2}$|[/:\s\0]/.test(text);
}
