// A stand-in for tests.
#pragma once
