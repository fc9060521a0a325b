// The head of a PTX module that every GPU compiles, in front of a literal with its functions.
#pragma once

#define PTX_HEAD ".version 6.3\n.target sm_50\n.address_size 64\n"
