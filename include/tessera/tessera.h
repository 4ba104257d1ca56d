/* SPDX-License-Identifier: Apache-2.0
 * Exact attention on NVIDIA, AMD, OpenCL and CPU devices behind one C interface. */
#ifndef TESSERA_TESSERA_H
#define TESSERA_TESSERA_H

#include "attention.h"
#include "base.h"
#include "context.h"
#include "device.h"

#endif
